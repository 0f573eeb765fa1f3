"""Ways to stop a run at a chosen place, and to compare runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.engines.simulate import run_job
from fedpurin.job import Job


class Stop(Exception):
    """The run ends here, as if the process had."""


class StopAt(Watcher):
    """Stops in round t: while its clients work, or after its lines were written and before its checkpoint."""

    def __init__(self, t: int, *, after_client: int | None = None) -> None:
        self.t, self.after_client = t, after_client

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        if t == self.t and done == self.after_client:
            raise Stop

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        if self.after_client is None and record["round"] == self.t:
            raise Stop


def run(config: Config, path: Path, watcher: Watcher | None = None) -> dict[str, Any]:
    return run_job(Job.build(config), path, watcher)


def run_until(config: Config, path: Path, t: int, after_client: int | None = None) -> None:
    with pytest.raises(Stop):
        run(config, path, StopAt(t, after_client=after_client))


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the timings."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def assert_same_runs(a: Path, b: Path) -> None:
    """Models, masks, metrics and ledger: everything but the clock."""
    results = [json.loads((path / "result.json").read_text()) for path in (a, b)]
    assert results[0]["digest"] is not None
    assert {k: v for k, v in results[0].items() if k != "seconds"} == {
        k: v for k, v in results[1].items() if k != "seconds"
    }
    assert metrics_of(a) == metrics_of(b)
    assert (a / "ledger.jsonl").read_bytes() == (b / "ledger.jsonl").read_bytes()
    for model in sorted((a / "models").iterdir()):
        assert model.read_bytes() == (b / "models" / model.name).read_bytes()
    coverage = [path / "coverage.safetensors" for path in (a, b)]
    assert coverage[0].exists() == coverage[1].exists()
    if coverage[0].exists():
        assert coverage[0].read_bytes() == coverage[1].read_bytes()
