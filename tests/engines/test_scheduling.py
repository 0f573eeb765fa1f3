"""Clients of very different sizes: the longest start first, so that workers finish together."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedpurin.config import Config
from fedpurin.data import Split
from fedpurin.engines import simulate
from fedpurin.engines.local import LocalWorkers
from fedpurin.engines.simulate import run_job
from fedpurin.engines.transport import ClientTask, Outcome, Reply
from fedpurin.job import Job

SIZES = [20, 20, 20, 20, 20, 20, 20, 160]  # the long one is last by number
WORKERS = 2


@pytest.fixture
def job(tmp_path: Path) -> Job:
    starts = np.cumsum([0, *SIZES])
    train = [np.arange(a, a + n) for a, n in zip(starts[:-1], SIZES, strict=True)]
    Split(train, [np.arange(4) for _ in SIZES]).save(tmp_path / "split.json")
    return Job.build(
        Config().updated(
            {
                "run": {"method": "fedavg", "rounds": 1, "clients": len(SIZES), "workers": WORKERS},
                "data": {"split_file": str(tmp_path / "split.json")},
                "model": {"name": "mlp"},
                "train": {"epochs": 1},
            }
        )
    )


def idle_share(order: list[int]) -> float:
    """Of the workers' time, if a task takes as long as its client has samples and goes to whoever is free."""
    free_at = [0] * WORKERS
    for client in order:
        heapq.heapreplace(free_at, free_at[0] + SIZES[client])
    return 1 - sum(SIZES) / (WORKERS * max(free_at))


def orders_of(job: Job, path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """In which order the tasks of each kind were given out in a real run."""
    given: dict[str, list[int]] = {}

    class Noting(LocalWorkers):
        def work(self, waiting: deque[ClientTask], reply: Reply) -> Iterator[Outcome]:
            given[waiting[0].op] = [task.client for task in waiting]
            return super().work(waiting, reply)

    monkeypatch.setattr(simulate, "make_transport", Noting)
    run_job(job, path)
    return given


@pytest.mark.slow
def test_a_round_starts_with_the_longest_client_and_wastes_less(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = orders_of(job, tmp_path / "run", monkeypatch)["work"]
    assert order == [7, 0, 1, 2, 3, 4, 5, 6], "by samples, then by number"
    # 300 samples for two workers. Longest first: 160 beside 7 * 20 = 140, so 320 of time and 20 of it idle.
    assert idle_share(order) == pytest.approx(20 / 320)
    # By number: 60 and 80, then 160 after the 60: 220 each, 440 of time and 140 of it idle.
    assert idle_share(sorted(order)) == pytest.approx(140 / 440)
