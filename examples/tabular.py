"""A table: which tumours are malignant? Five clinics see tumours of different sizes.

The data are scikit-learn's breast cancer set, 569 patients. A screening centre sees small tumours, a referral
clinic large ones: patients are sorted by the mean radius and dealt out in five groups that overlap a little.

    python -m examples.tabular        writes runs/tabular/accuracy.png and report.html
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

import fedpurin

CLINICS = ["screening", "practice", "county", "city", "referral"]


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))


def clinics() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    patients = load_breast_cancer()
    x = (patients.data - patients.data.mean(0)) / patients.data.std(0)
    noisy_radius = x[:, 0] + np.random.default_rng(0).normal(scale=0.5, size=len(x))
    groups = np.array_split(np.argsort(noisy_radius), len(CLINICS))
    return {name: (x[rows], patients.target[rows]) for name, rows in zip(CLINICS, groups, strict=True)}


def main(out: Path = Path("runs/tabular"), rounds: int = 12) -> fedpurin.Comparison:
    runs = fedpurin.compare(
        model=make_model,
        data=fedpurin.clients(clinics(), classes=["malignant", "benign"], test=0.3),
        methods=["separate", "fedavg", "fedpurin"],
        rounds=rounds,
        epochs=3,
        batch_size=16,
        lr=0.02,
        out=out,
    )
    runs.save_figure("accuracy", out / "accuracy.png")
    runs.report(out / "report.html")
    return runs


if __name__ == "__main__":
    print(main())
