"""A training step of the paper's networks, with convolutions of torch and with ours (`models.Conv2d`).

python -m benchmarks.convolutions [--repeats 5] [--steps 10] [--batch 100] [--json FILE]

Processor seconds, one torch thread, the two in turn; the median of their ratios says what is gained.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fedpurin.bench.training import machine
from fedpurin.models import Conv2d, build
from fedpurin.train import prepare_process

SHAPES = {"resnet8": ((3, 32, 32), 10), "resnet10": ((3, 32, 32), 100)}


@contextmanager
def as_torch_has_them() -> Iterator[None]:
    ours = Conv2d.forward
    Conv2d.forward = nn.Conv2d.forward  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Conv2d.forward = ours  # type: ignore[method-assign]


def seconds_of_a_step(name: str, batch: int, steps: int) -> float:
    shape, classes = SHAPES[name]
    model = build(name, shape, classes, seed=1)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.rand(batch, *shape).to(memory_format=torch.channels_last)
    y = torch.arange(batch) % classes
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    began = 0.0
    for step in range(steps + 2):  # two to warm up
        began = time.process_time() if step == 2 else began
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return (time.process_time() - began) / steps


def measure(name: str, batch: int, steps: int, repeats: int) -> dict[str, Any]:
    theirs, ours = [], []
    for _ in range(repeats):
        with as_torch_has_them():
            theirs.append(seconds_of_a_step(name, batch, steps))
        ours.append(seconds_of_a_step(name, batch, steps))
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    medians = {"torch's, ms": 1000 * statistics.median(theirs), "ours, ms": 1000 * statistics.median(ours)}
    spread = {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    return {"model": name, "batch": batch, **{k: round(v, 2) for k, v in (medians | spread).items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    prepare_process()
    found = {
        "machine": machine(),
        "rows": [measure(name, options.batch, options.steps, options.repeats) for name in SHAPES],
    }
    for row in found["rows"]:
        print(row)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
