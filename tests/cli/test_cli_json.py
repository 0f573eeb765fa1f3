"""--json: one JSON document on stdout and nothing else there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Command

from fedpurin.methods import METHODS
from tiny import tiny_config


def document(fedpurin: Command, *words: str) -> Any:
    answer = fedpurin(*words)
    assert answer.code == 0, answer.error
    return json.loads(answer.out)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, run__rounds=1).to_toml())
    return "c.toml"


def test_a_run_and_what_reads_it(fedpurin: Command, tmp_path: Path, config: str) -> None:
    made = fedpurin("run", config, "--out", "run", "--json")
    told = json.loads(made.out)
    assert "round   1/1" in made.error  # people are told beside it
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert told == {"path": "run", "complete": True, **result}
    assert document(fedpurin, "show", "run", "--json") == [told]
    totals = document(fedpurin, "ledger", "run", "--json")
    fedpurin("ledger", "run", "--json", "totals.json")
    assert totals == json.loads((tmp_path / "totals.json").read_text())
    clients = told["clients"]
    assert totals["directions"]["up"]["phases"]["all rounds"]["messages"] == clients


def test_a_comparison_is_a_list_and_its_ledger_points_to_its_runs(fedpurin: Command, config: str) -> None:
    words = ("compare", config, "--methods", "separate,fedavg", "--out", "both", "--json")
    told = document(fedpurin, *words)
    assert [run["path"] for run in told] == ["both/separate-s1", "both/fedavg-s1"]
    for command in ("ledger", "watch"):
        line = fedpurin.refuse(command, "both")
        assert "both holds 2 runs; name one of them: both/fedavg-s1, both/separate-s1" in line


def test_a_ledger_that_cannot_be_written_is_one_line(fedpurin: Command, tmp_path: Path, config: str) -> None:
    assert fedpurin("run", config, "--out", "run").code == 0
    (tmp_path / "file").write_text("")
    for flag in ("--csv", "--json"):
        assert "file/l cannot be written" in fedpurin.refuse("ledger", "run", flag, "file/l")
        assert ". cannot be written: it is a folder" in fedpurin.refuse("ledger", "run", flag, ".")


def test_methods_and_their_settings(fedpurin: Command) -> None:
    told = document(fedpurin, "methods", "--json")
    assert list(told) == list(METHODS)
    tau = told["fedpurin"]["settings"]["tau"]
    assert (tau["default"], tau["above"], tau["most"]) == (0.5, 0, 1)
    assert list(document(fedpurin, "methods", "fedavg", "--json")) == ["fedavg"]


def test_data_sets(fedpurin: Command, tmp_path: Path) -> None:
    told = document(fedpurin, "data", "list", "--data-dir", str(tmp_path), "--json")
    assert told["folder"] == str(tmp_path)
    assert told["data_sets"]["fashion-mnist-mini"] == "bundled"
    assert told["data_sets"]["cifar-10"] == "missing"
    good = document(fedpurin, "data", "check", "fashion-mnist-mini", "--json")
    assert good["ok"] is True
    bad = fedpurin("data", "check", "cifar-10", "--data-dir", str(tmp_path), "--json")
    assert bad.code == 1
    assert json.loads(bad.out)["ok"] is False


def test_a_refusal_leaves_stdout_empty(fedpurin: Command) -> None:
    answer = fedpurin("run", "--tau", "2", "--json")
    assert (answer.code, answer.out) == (1, "")
