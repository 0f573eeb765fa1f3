"""The table and the figure of check-perturbation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.report.style import matplotlib_style
from fedpurin.reproduce.accuracy import DATASET_LABELS
from fedpurin.reproduce.cells import config_of
from fedpurin.reproduce.figures import new_figure, save
from fedpurin.reproduce.tables import Item, Table

LABELS = {
    "first-order": "first order, all samples",
    "batch": "batch gradient (Eq. 7)",
    "fisher": "per-sample Fisher (Eq. 5)",
    "magnitude": "magnitude",
    "random": "random",
}
COLORS = {"first-order": "#0072b2", "batch": "#d55e00", "fisher": "#009e73"}


def describe(line: dict[str, Any]) -> str:
    c = config_of(line["config"])
    return (
        f"{DATASET_LABELS.get(c.data.dataset, c.data.dataset)}, α={c.data.alpha:g}, {c.model.name}, "
        f"{c.run.rounds} x {c.train.epochs} local epochs"
    )


def decile_table(line: dict[str, Any]) -> Table:
    rows: list[list[Item]] = []
    for name, found in line["scores"].items():
        for kind in ("predicted", "measured", "small"):
            if found[kind][0] is None:
                continue
            what = {"predicted": "predicted", "measured": "zeroed", "small": "1 % step x 100"}[kind]
            rows.append([f"{LABELS[name]}: {what}", *(f"{v:+.3f}" for v in found[kind])])
    notes = [
        f"Change of the mean training loss ({line['loss']:.3f} before) when one decile of every layer, by "
        f"score, is set to zero. {describe(line)}; mean of {line['clients']} clients trained alone."
    ]
    return Table(
        "Change of the loss by score decile.", ["decile", *(str(i) for i in range(1, 11))], rows, notes
    )


def rank_agreement(line: dict[str, Any], name: str) -> float:
    """Spearman correlation over the deciles between score rank and measured change."""
    measured = np.array(line["scores"][name]["measured"], dtype=np.float64)
    ranks = measured.argsort().argsort()
    return float(np.corrcoef(ranks, np.arange(len(measured)))[0, 1])


def cost_table(lines: list[dict[str, Any]]) -> Table:
    """Seconds of scoring beside one round's local training."""
    rows: list[list[Item]] = []
    for line in lines:
        s = line["seconds"]
        rows.append(
            [
                describe(line),
                f"{s['training']:.2f} s",
                *(f"{100 * s[name] / s['training']:.1f} %" for name in ("mask", "full_gradient", "fisher")),
            ]
        )
    header = [
        "",
        "local training, one round",
        "FedPURIN's score and mask",
        "gradient over all samples",
        "per-sample Fisher",
    ]
    return Table(
        "Cost of scoring.",
        header,
        rows,
        ["One core, shared with other work: read the ratios, not the seconds."],
    )


def floor_table(lines: list[dict[str, Any]]) -> Table:
    """What float16 and the floor of 1e-10 do."""
    rows: list[list[Item]] = []
    for line in lines:
        shares = line["shares"]
        names = (
            "zero_gradient_float32",
            "zero_gradient_float16",
            "at_floor_float32",
            "at_floor_float16",
            "kept_without_floor",
            "kept_float32",
            "kept_float16",
        )
        rows.append(
            [describe(line), f"{line['loss']:.4f}", *(f"{100 * shares[name]:.1f} %" for name in names)]
        )
    header = [
        "",
        "training loss",
        "zero gradients, float32",
        "zero gradients, float16",
        "scores ≤ 1e-10, float32",
        "scores ≤ 1e-10, float16",
        "kept without the floor",
        "kept, float32",
        "kept, float16",
    ]
    return Table(
        "float16 and the floor.",
        header,
        rows,
        ["Share of the exchanged parameters, τ = 0.5, last mini-batch."],
    )


def decile_figure(line: dict[str, Any], out: Path) -> list[Path]:
    """A panel per score: bars measured, line predicted."""
    with matplotlib_style():
        figure, axes = new_figure(figsize=(10.4, 3.3), ncols=3, sharey=True)
        x = np.arange(1, 11)
        for axis, name in zip(axes[0], COLORS, strict=True):
            found = line["scores"][name]
            axis.bar(x, found["measured"], 0.8, color=COLORS[name], alpha=0.45, label="measured, set to zero")
            axis.plot(
                x,
                found["small"],
                color="#444444",
                linestyle=":",
                marker="s",
                markersize=4,
                label="measured, 1 % step x 100",
            )
            axis.plot(
                x, found["predicted"], color=COLORS[name], marker="o", markersize=4.5, label="predicted"
            )
            axis.set_title(LABELS[name], fontsize=11)
            axis.set_xticks(x)
            axis.set_xlabel("score decile (10: highest)")
            axis.grid(axis="x", visible=False)
            axis.set_yscale("symlog", linthresh=0.01)
        axes[0][0].set_ylabel("change of the loss")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        config = config_of(line["config"])
        return save(figure, out, f"perturbation-{config.data.dataset}-t{config.run.rounds}")
