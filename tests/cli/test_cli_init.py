"""fedpurin init writes a project that runs as it is."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from cli_tools import Command

from fedpurin.cli.init import FILES, configuration
from fedpurin.config import Config
from fedpurin.sections import SECTIONS
from fedpurin.settings import help_of


@pytest.fixture(autouse=True)
def _fresh_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test's my_project is its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_project", raising=False)


def test_what_it_writes_runs_with_the_command_it_prints(
    fedpurin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = fedpurin("init", "mine").out
    commands = [line.split() for line in told.splitlines() if line.startswith("  ")]
    assert commands[0] == ["cd", "mine"]
    monkeypatch.chdir(tmp_path / "mine")
    assert commands[1][0] == "fedpurin"
    answer = fedpurin(*commands[1][1:])
    assert answer.code == 0, answer.error
    assert "FedPURIN" in answer.out
    last = float(re.findall(r"accuracy +([\d.]+) %", answer.out)[-1])
    assert last > 60  # four classes, so chance is 25; two classes for a client, so guessing its own gives 50
    assert commands[2][:3] == ["fedpurin", "compare", "config.toml"]


def test_nothing_is_overwritten(fedpurin: Command, tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("mine")
        assert f"{name} is there already" in fedpurin.refuse("init")
        assert [p.name for p in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()
    (tmp_path / "file").write_text("")
    assert "file/below" in fedpurin.refuse("init", "file/below")


def test_every_setting_is_there_with_its_help_and_the_value_that_counts() -> None:
    """Without its comment signs the file says what it says with them."""
    text = configuration()
    config = Config.preset("quickstart").updated(tomllib.loads(text))
    bare = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    whole = tomllib.loads(bare)
    assert whole.pop("preset") == "quickstart"
    assert whole == config.as_dict()
    for section, kind in {**SECTIONS, "method": type(config.method)}.items():
        for field in fields(kind):
            assert re.search(
                rf"^(# )?{field.name} = .*# {re.escape(help_of(kind, field.name))}", text, re.M
            ), section
