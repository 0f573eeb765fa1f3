"""A number instead of a class: how far does diabetes progress within a year?

442 patients of scikit-learn's diabetes set, one DataFrame. Clients are groups that nature made: women and
men of three age groups. The target is a float, so the loss is the mean squared error and the metric R², the
share of the variance that is explained.

    python -m examples.regression     writes runs/regression/progression.png
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import fedpurin
from fedpurin.report import METHOD_COLORS, METHOD_LABELS, matplotlib_style

METHODS = ["separate", "fedavg", "fedpurin"]


def patients() -> Any:
    """Measurements and target scaled, and a column that says whose patient it is."""
    raw = load_diabetes(as_frame=True, scaled=False).frame
    sex = np.where(raw["sex"] == 1, "women", "men")
    age = np.select([raw["age"] < 42, raw["age"] < 55], ["under 42", "42 to 54"], "55 and over")
    frame = (raw - raw.mean()) / raw.std()
    return frame.assign(group=[f"{s} {a}" for s, a in zip(sex, age, strict=True)])


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))


def main(out: Path = Path("runs/regression"), rounds: int = 15) -> fedpurin.Comparison:
    data = fedpurin.clients(patients(), client="group", y="target", test=0.3)
    runs = fedpurin.compare(
        model=make_model,
        data=data,
        methods=METHODS,
        rounds=rounds,
        epochs=2,
        batch_size=16,
        lr=0.01,
        out=out,
    )
    draw(runs, data, out / "progression.png")
    return runs


def draw(runs: fedpurin.Comparison, data: fedpurin.Clients, path: Path) -> None:
    """R² of each group with each method, and one group's predictions."""
    with matplotlib_style():
        figure, (bars, dots) = plt.subplots(
            1, 2, figsize=(11, 4.2), width_ratios=[3, 2], layout="constrained"
        )
        place = np.arange(len(data.names))
        for i, name in enumerate(METHODS):
            r2 = [runs[name].client(c).accuracy()[-1] for c in range(len(data.names))]
            bars.bar(place + 0.27 * (i - 1), r2, 0.25, color=METHOD_COLORS[name], label=METHOD_LABELS[name])
        bars.set_xticks(place, [name.replace(" ", "\n", 1) for name in data.names])
        bars.axhline(0, color="0.4", linewidth=0.8)
        bars.set_ylabel("R² on the group's own test patients")
        bars.set_title("Who gains from the others?")
        bars.legend()
        model, part = runs["fedpurin"].client(0).model(), data.parts[0]
        with torch.no_grad():
            predicted = model(part.test_x)[:, 0]
        dots.scatter(part.test_y, predicted, color=METHOD_COLORS["fedpurin"], s=18)
        dots.axline((0, 0), slope=1, color="0.4", linewidth=0.8)
        dots.set_xlabel("progression (standard deviations)")
        dots.set_ylabel("predicted")
        dots.set_title(f"FedPURIN, {data.names[0]}")
        figure.savefig(path)
        plt.close(figure)


if __name__ == "__main__":
    print(main())
