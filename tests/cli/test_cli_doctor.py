"""fedpurin doctor says what is there, what is missing, and fails only for what every run needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from cli_tools import Command

from fedpurin import doctor

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TRAINING_SECONDS", 0.0)


def test_a_healthy_machine_is_told_so(fedpurin: Command) -> None:
    answer = fedpurin("doctor")
    assert answer.code == 0, answer.out
    assert re.search(
        r"training +[\d,]+ samples per second in one process; loss from 2\.\d+ to [01]\.\d+", answer.out
    )
    for word in ("torch", "flower", "fashion-mnist-mini", "usable cores", "device"):
        assert word in answer.out
    assert "cifar-10: fedpurin data get cifar-10" in answer.out  # the fixture's FEDPURIN_DATA is empty


def test_what_is_missing_is_advice_and_no_failure(fedpurin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version

    def without_ray(package: str) -> str:
        if package == "ray":
            raise PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(doctor, "version", without_ray)
    answer = fedpurin("doctor", "--json")
    assert (answer.code, answer.error) == (0, "")
    told = json.loads(answer.out)
    assert told["ok"] is True
    (ray,) = [finding for finding in told["findings"] if finding["name"] == "ray"]
    assert (ray["status"], ray["text"]) == ("missing", "without ray")
    assert "pip install 'fedpurin[ray]'" in ray["advice"]


@pytest.mark.parametrize(
    ("result", "says"),
    [((2.3, float("nan"), 100.0), "loss from 2.30 to nan"), ((2.3, 2.4, 100.0), "loss from 2.30 to 2.40")],
)
def test_training_that_does_not_learn_is_a_failure(
    fedpurin: Command, monkeypatch: pytest.MonkeyPatch, result: tuple[float, ...], says: str
) -> None:
    monkeypatch.setattr(doctor, "train_a_second", lambda: result)
    answer = fedpurin("doctor")
    assert answer.code == 1
    assert says in answer.out
    assert "Broken: training" in answer.out


def test_training_that_fails_is_a_line_and_not_a_stack(
    fedpurin: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("libgomp.so.1")

    monkeypatch.setattr(doctor, "train_a_second", fail)
    answer = fedpurin("doctor", "--json")
    assert answer.code == 1
    assert json.loads(answer.out)["findings"][-1]["text"] == "ImportError: libgomp.so.1"


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, (packages, _) in doctor.EXTRAS.items():
        assert {re.split(r"[<>=]", need)[0] for need in declared[extra]} == set(packages)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(fedpurin: Command, shell: str) -> None:
    answer = fedpurin("completion", shell)
    assert answer.code == 0
    assert "fedpurin" in answer.out
    assert "_ARGCOMPLETE" in answer.out
    assert {"bash": "complete -o", "zsh": "compdef", "fish": "complete --command"}[shell] in answer.out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedpurin comp", {"compare", "completion"}),
        ("fedpurin data get cifar-1", {"cifar-10", "cifar-100"}),
        ("fedpurin run --preset paper-c", {"paper-cifar10", "paper-cifar100"}),
        ("fedpurin federation server --das", {"--dashboard"}),
    ],
)
def test_a_shell_is_offered_what_can_follow(tmp_path: Path, line: str, offered: set[str]) -> None:
    """As the shell asks: the line in the environment, the answer on descriptor 8; here a file."""
    answer = tmp_path / "answer"
    env = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    code = "import sys; sys.argv[0] = 'fedpurin'; from fedpurin.cli import main; main()"
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120, capture_output=True)
    assert {word.strip() for word in answer.read_text().split("\n") if word.strip()} == offered
