"""Runs from Python: the same results as the command line, each on its engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedpurin
from engine_tools import run_until
from fedpurin.comparing import Plan
from fedpurin.errors import RunError
from fedpurin.federation import engine
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

CONFIG = fedpurin.Config().updated(
    {
        "run": {"method": "fedpurin", "clients": 2, "rounds": 2, "workers": 1},
        "data": {"train_samples": 10, "test_samples": 5},
        "model": {"name": "mlp"},
        "train": {"epochs": 1, "batch_size": 5},
        "method": {"beta": 1},
    }
)


def test_what_another_process_left_half_done_is_continued(tmp_path: Path) -> None:
    Plan({"fedpurin": CONFIG}, [1]).claim(tmp_path / "all")
    run_until(CONFIG, tmp_path / "all" / "fedpurin-s1", 2)
    assert not (tmp_path / "all" / "fedpurin-s1" / "result.json").exists()
    (continued,) = fedpurin.compare(CONFIG, ["fedpurin"], tmp_path / "all")
    whole = fedpurin.run(CONFIG, tmp_path / "whole")
    assert continued.summary["digest"] == whole.summary["digest"]
    (again,) = fedpurin.compare(CONFIG, ["fedpurin"], tmp_path / "all")
    assert again.summary == continued.summary


def test_another_comparison_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    (first,) = fedpurin.compare(CONFIG, ["fedpurin"], tmp_path / "all")
    with pytest.raises(RunError, match="holds another comparison"):
        fedpurin.compare(CONFIG.updated({"method": {"tau": 0.1}}), ["fedpurin"], tmp_path / "all")
    assert fedpurin.load(first.path).summary == first.summary


def test_a_keyword_that_is_none_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"unknown keyword round; there are model, data, rounds, epochs"):
        fedpurin.compare(CONFIG, ["fedpurin"], tmp_path / "all", round=3)  # type: ignore[call-arg]


def test_many_runs_in_one_process_give_their_memory_back(tmp_path: Path) -> None:
    """The states of clients are in memory files; a file and its pages go when the run is over."""

    def memory_files() -> int:
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
        return sum("memfd:fedpurin" in link for link in links)

    before = memory_files()
    for number in range(3):
        fedpurin.run(CONFIG, tmp_path / f"run-{number}")
    assert memory_files() == before


def _is_open(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_a_run_of_flower_is_continued_on_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.build(CONFIG.updated({"run": {"engine": "flower"}}))
    RunDirectory.create(tmp_path / "run", job).close()
    continued: list[Path] = []
    monkeypatch.setattr(engine, "resume_run", lambda path, watcher: continued.append(path))
    fedpurin.resume(tmp_path / "run")
    assert continued == [tmp_path / "run"]


def test_a_directory_that_is_no_run_cannot_be_continued(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        fedpurin.resume(tmp_path)
