"""The soak program: what it counts as growth, and that a short run of it stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import LIMITS, grown

ROOT = Path(__file__).parents[2]


def samples(**grows: float) -> list[dict[str, float]]:
    """Sixty samples of 500 rounds; each measure begins at 100 and grows by so much in all."""
    return [
        {"done": 8 * i} | {name: 100 + grows.get(name, 0) * i / 60 for name in LIMITS} for i in range(1, 61)
    ]


def test_what_stays_or_wavers_is_flat() -> None:
    assert grown(samples()) == []
    assert grown(samples(MiB=4)) == []


@pytest.mark.parametrize("name", LIMITS)
def test_whatever_grows_is_named(name: str) -> None:
    (found,) = grown(samples(**{name: 30}))
    assert found.startswith(name)


@pytest.mark.slow
def test_thirty_rounds_leave_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    words = [sys.executable, "-m", "benchmarks.soak", "local", "--rounds", "30", "--json", str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())["local"]
    assert found["count"] == 31, "thirty rounds and the last reply"
    assert len(found["samples"]) > 3, "else nothing was watched"
    processes = [sample["processes"] for sample in found["samples"]]
    assert max(processes) == 3, "the command and two workers; the last sample may come while they end"


@pytest.mark.slow
def test_many_runs_go_through_the_store_of_reproduce(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.soak", "runs", "--runs", "2", "--folder", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "store" / "runs.jsonl").read_text().splitlines()]
    assert [line["config"]["run"]["seed"] for line in lines] == [1, 2]
