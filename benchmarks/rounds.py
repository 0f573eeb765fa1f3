"""A real run: which share of a round is not local training, and what a checkpoint costs.

    python -m benchmarks.rounds [--clients 20] [--rounds 6] [--epochs 5] [--json FILE]

FedPURIN with ResNet-8 and random images in the shape of CIFAR-10, 500 a client. The first round warms up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from fedpurin.bench.training import machine
from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.engines.local import available_cores
from fedpurin.engines.simulate import run_job
from fedpurin.job import Job


class Notes(Watcher):
    def __init__(self) -> None:
        self.seconds: list[dict[str, float]] = []

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        self.seconds.append(record["seconds"])


def measure(clients: int, rounds: int, epochs: int) -> dict[str, Any]:
    config = Config().updated(
        {
            "run": {"method": "fedpurin", "clients": clients, "rounds": rounds},
            "data": {
                "dataset": "fedpurin.bench.training:cifar_like",
                "train_samples": 500,
                "test_samples": 100,
                "alpha": 0.5,
            },
            "model": {"name": "resnet8"},
            "train": {"epochs": epochs, "batch_size": 100},
            "method": {"beta": 100},
        }
    )
    notes = Notes()
    with tempfile.TemporaryDirectory() as folder:
        run_job(Job.build(config), Path(folder) / "run", notes)
    workers = min(available_cores(), clients)
    rows = notes.seconds[1:rounds]
    checkpoints = [s["checkpoint"] for s in notes.seconds[2:]]  # of the round before each record

    def share(name: str) -> float:
        """Of the workers' time in a round."""
        return statistics.median(s[name] / (workers * s["round"]) for s in rows)

    return {
        "machine": machine(),
        "clients": clients,
        "epochs": epochs,
        "round, s": statistics.median(s["round"] for s in rows),
        "not training": 1 - share("train"),
        "of it: evaluation": share("evaluate"),
        "of it: masks, messages, copying": share("client"),
        "server, s": statistics.median(s["server"] for s in rows),
        "server / round": statistics.median(s["server"] / s["round"] for s in rows),
        "checkpoint, s": statistics.median(checkpoints),
        "checkpoint / round": statistics.median(
            c / s["round"] for c, s in zip(checkpoints, rows, strict=False)
        ),
    }


def table(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if isinstance(value, float):
            print(f"{name:40s}{value:10.3f}" if name.endswith(", s") else f"{name:40s}{value:10.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.clients, options.rounds, options.epochs)
    table(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
