"""bfloat16 against float32: python -m benchmarks.precision [--repeats N] [--data-dir DIR] [--json FILE]

A ResNet-8 client on CIFAR-10 (paper's setting, 10 epochs) and the whole quickstart, each once in either
precision in turn; a repetition is another client, or another seed. CPU seconds of one process, after a
warm-up; the ratio is taken inside each repetition. The loss and accuracy are those of the test samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.nn import functional as F

import fedpurin
from fedpurin.bench.training import machine
from fedpurin.devices import prepared
from fedpurin.job import Job
from fedpurin.train import evaluate, prepare_process, train

FILE = Path(__file__).with_name("results") / "precision.json"
PRECISIONS = ("float32", "bfloat16")
EPOCHS = 10

Once = Callable[[str, int], tuple[float, float]]  # (precision, repetition) -> CPU seconds, accuracy


def client(job: Job, epochs: int = EPOCHS) -> Once:
    settings = replace(job.config.train, epochs=epochs)

    def once(precision: str, repeat: int) -> tuple[float, float]:
        model, data = prepared(job.model(repeat), "cpu", precision), job.client_data(repeat)
        start = time.process_time()
        train(model, data, settings, lambda m, x, y: F.cross_entropy(m(x), y), repeat, "cpu")
        return time.process_time() - start, evaluate(model, data, "cpu").accuracy

    return once


def quickstart(precision: str, repeat: int) -> tuple[float, float]:
    config = fedpurin.Config.preset("quickstart").updated(
        {"run": {"engine": "inline", "seed": repeat + 1}, "train": {"precision": precision}}
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = fedpurin.run(config, Path(folder) / "run", progress=False)
        return time.process_time() - start, float(run.summary["accuracy"]["trained"]["last"])


def measure(once: Once, repeats: int) -> dict[str, Any]:
    for precision in PRECISIONS:
        once(precision, 0)  # warm-up
    pairs = [{p: once(p, repeat) for p in PRECISIONS} for repeat in range(repeats)]
    seconds = {p: [pair[p][0] for pair in pairs] for p in PRECISIONS}
    accuracy = {p: [pair[p][1] for pair in pairs] for p in PRECISIONS}
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    return {"seconds": seconds, "accuracy": accuracy, "ratio": ratios}


def table(name: str, found: dict[str, Any]) -> None:
    for precision in PRECISIONS:
        seconds, accuracy = found["seconds"][precision], found["accuracy"][precision]
        print(
            f"{name:28s}{precision:10s}{statistics.median(seconds):8.2f} CPU s"
            f"{100 * statistics.mean(accuracy):8.1f} % mean accuracy of {len(accuracy)}"
        )
    ratios = found["ratio"]
    print(f"{'':28s}ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--json", type=Path, default=FILE)
    options = parser.parse_args()
    about = machine()
    print(f"{about['cpu']}, torch {about['torch']}; load before: {about['load']:.1f}")
    prepare_process()
    config = fedpurin.Config.preset("paper-cifar10").updated({"data": {"dir": options.data_dir}})
    found: dict[str, Any] = {"machine": about}
    for name, once in (("ResNet-8, CIFAR-10", client(Job.build(config))), ("quickstart", quickstart)):
        found[name] = measure(once, options.repeats)
        table(name, found[name])
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
