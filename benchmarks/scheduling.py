"""Clients of very different sizes on all cores: idle time of the workers, longest first and by number.

python -m benchmarks.scheduling [--repeats 5]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.config import Config
from fedpurin.data import Split
from fedpurin.engines.local import LocalWorkers
from fedpurin.engines.site import Site
from fedpurin.engines.transport import ClientTask
from fedpurin.job import Job
from fedpurin.meta import Meta

SIZES = [100] * 7 + [600]  # the long one is last by number


def build(folder: Path) -> Job:
    ends = np.cumsum([0, *SIZES])
    train = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    Split(train, [np.arange(10) for _ in SIZES]).save(folder / "split.json")
    return Job.build(
        Config().updated(
            {
                "run": {"method": "fedpurin", "clients": len(SIZES)},
                "data": {
                    "dataset": "fedpurin.bench.training:cifar_like",
                    "split_file": str(folder / "split.json"),
                },
                "model": {"name": "resnet8"},
                "train": {"epochs": 1, "batch_size": 50},
            }
        )
    )


def idle(workers: LocalWorkers, order: list[int]) -> float:
    start = time.perf_counter()
    outcomes = list(
        workers.work(deque(ClientTask("work", client, 1) for client in order), lambda client: None)
    )
    wall = time.perf_counter() - start
    busy = sum(sum(Meta.from_bytes(outcome.meta).seconds) for outcome in outcomes)
    return 1 - busy / (workers.count * wall)


def measure(repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, LocalWorkers(build(Path(folder))) as workers:
        site = Site(workers.job)
        for client in range(len(SIZES)):  # what a round starts from lies ready
            workers.table.write(client, site.initial_state(client))
        by_number = list(range(len(SIZES)))
        longest_first = sorted(by_number, key=lambda client: -SIZES[client])
        idle(workers, by_number)
        pairs = [(idle(workers, longest_first), idle(workers, by_number)) for _ in range(repeats)]
    return {
        "samples per client": SIZES,
        "idle, longest first": statistics.median(a for a, _ in pairs),
        "idle, by number": statistics.median(b for _, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    found = measure(parser.parse_args().repeats)
    print({name: value if isinstance(value, list) else f"{value:.1%}" for name, value in found.items()})


if __name__ == "__main__":
    main()
