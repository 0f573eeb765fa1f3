"""Configurations that have a name: what each says beyond the defaults."""

from __future__ import annotations

from typing import Any


def _paper(dataset: str, model: str, rounds: int, beta: int) -> dict[str, dict[str, Any]]:
    return {
        "run": {"rounds": rounds, "clients": 20},
        "data": {"dataset": dataset, "alpha": 0.1, "train_samples": 500, "test_samples": 100},
        "model": {"name": model},
        "train": {"epochs": 5, "batch_size": 100, "lr": 0.1, "momentum": 0.9},
        "method": {"tau": 0.5, "beta": beta, "gradient_dtype": "float16"},
    }


FEW_SAMPLES: dict[str, dict[str, Any]] = {
    "run": {"rounds": 15, "clients": 20},
    "data": {"alpha": 0.5, "train_samples": 50},
    "train": {"batch_size": 25},
    "method": {"beta": 8},
}
"""Clients with so little data that learning from others pays."""

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "quickstart": FEW_SAMPLES,
    "frugal": {**FEW_SAMPLES, "run": {**FEW_SAMPLES["run"], "method": "fedfrugal"}},
    "mini": {"method": {"beta": 6}},  # the small experiments of docs/reproduction.md
    "paper-fashion-mnist": _paper("fashion-mnist", "resnet8", 200, 100),
    "paper-cifar10": _paper("cifar-10", "resnet8", 200, 100),
    "paper-cifar100": _paper("cifar-100", "resnet10", 300, 170),
}
