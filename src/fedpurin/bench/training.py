"""Local training: our worker processes against a plain loop and against the limit of the cores.

plain    what most simulators do: one process with torch's default threads, a DataLoader, contiguous
         layout, a deep copy of the model per client
ours     the worker processes of the local engine, doing whole client tasks
limit    the model's FLOPs, forward and backward, at the rate of a large matrix product on the same cores
"""

from __future__ import annotations

import copy
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from fedpurin import models
from fedpurin.config import Config
from fedpurin.engines.local import LocalWorkers, available_cores
from fedpurin.engines.site import Site
from fedpurin.environment import cpu_name
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.meta import Meta

BATCH, SAMPLES = 100, 500  # the paper's
GEMM_SIZE = 2048


@dataclass(frozen=True)
class Rates:
    """Samples per second of the whole machine, once each, right after one another."""

    ours: float  # time spent in training only
    task: float  # with evaluation, masks and messages
    plain: float
    limit: float
    gemm: float  # GFLOP/s


def machine() -> dict[str, Any]:
    """What figures were taken on."""
    return {
        "cpu": cpu_name(),
        "cores": available_cores(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],  # before the measurement: how quiet the machine was
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def measure(repeats: int) -> list[Rates]:
    """One warm-up and `repeats` repetitions, each measuring all rates in turn."""
    clients = available_cores()
    flops = flops_per_sample()
    repeated = []
    with _workers(clients) as ours, _plain_process(clients) as plain:
        for repeat in range(repeats + 1):
            training, task = ours()
            gemm = gemm_rate()
            rates = Rates(training, task, plain(), gemm / flops, gemm / 1e9)
            if repeat:
                repeated.append(rates)
    return repeated


def flops_per_sample() -> float:
    """Forward and backward, counted by torch itself."""
    model = models.build("resnet8", (3, 32, 32), 10, seed=0)
    counter = FlopCounterMode(display=False)
    with counter:
        F.cross_entropy(model(torch.zeros(2, 3, 32, 32)), torch.zeros(2, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops() / 2


def gemm_rate() -> float:
    """FLOP/s of a matrix product on all cores that we may use."""
    before = torch.get_num_threads()
    torch.set_num_threads(available_cores())
    try:
        a, b = torch.randn(GEMM_SIZE, GEMM_SIZE), torch.randn(GEMM_SIZE, GEMM_SIZE)
        a @ b
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            a @ b
            rates.append(2 * GEMM_SIZE**3 / (time.perf_counter() - start))
    finally:
        torch.set_num_threads(before)
    return statistics.median(rates)


def cifar_like() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random images in the shape of CIFAR-10, so that a benchmark needs no download."""
    rng = np.random.default_rng(0)

    def side(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, count)

    return *side(4000), *side(400)


@contextmanager
def _workers(clients: int) -> Iterator[Callable[[], tuple[float, float]]]:
    """One epoch of every client by the local engine: samples/s of training alone, and of whole tasks."""
    config = Config().updated(
        {
            "run": {"method": "fedpurin", "clients": clients, "workers": clients},
            "data": {
                "dataset": "fedpurin.bench.training:cifar_like",
                "partition": "iid",
                "train_samples": SAMPLES,
                "test_samples": 100,
            },
            "model": {"name": "resnet8"},
            "train": {"epochs": 1, "batch_size": BATCH},
        }
    )
    workers = LocalWorkers(Job.build(config))

    def once() -> tuple[float, float]:
        start = time.perf_counter()
        outcomes = list(workers.run("work", 1, list(range(clients)), lambda client: None))
        wall = time.perf_counter() - start
        for outcome in outcomes:
            if outcome.failure:
                raise EngineError(outcome.failure.reason)
        training = [Meta.from_bytes(outcome.meta).seconds[0] for outcome in outcomes]
        return sum(SAMPLES / seconds for seconds in training), clients * SAMPLES / wall

    with workers:
        site = Site(workers.job)
        for client in range(clients):  # what a round starts from lies ready
            workers.table.write(client, site.initial_state(client))
        yield once


@contextmanager
def _plain_process(clients: int) -> Iterator[Callable[[], float]]:
    """A process of its own, because it must have torch's default number of threads."""
    command = [sys.executable, "-m", "fedpurin.bench.training", str(clients)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    orders, answers = process.stdin, process.stdout
    assert orders is not None
    assert answers is not None

    def once() -> float:
        orders.write("go\n")
        orders.flush()
        return float(answers.readline())

    try:
        yield once
    finally:
        orders.close()
        answers.close()
        process.kill()
        process.wait()


class _Samples(Dataset[tuple[Tensor, int]]):
    """Scaled sample by sample, as a transform does."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i].float() / 255, int(self.y[i])


def plain_epoch(common: nn.Module, data: _Samples) -> None:
    model = copy.deepcopy(common)
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _serve_plain(clients: int) -> None:
    x, y, _, _ = (torch.from_numpy(a) for a in cifar_like())
    data = _Samples(x[:SAMPLES], y[:SAMPLES])
    common = models.build("resnet8", (3, 32, 32), 10, seed=0)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(clients):
            plain_epoch(common, data)
        sys.stdout.write(f"{clients * SAMPLES / (time.perf_counter() - start)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve_plain(int(sys.argv[1]))
