"""Tables and the figure of check-perturbation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.report.style import matplotlib_style
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.paper_figures import legend_below, legend_entries, new_figure, save
from fedpurin.reproduce.scales import DATASETS
from fedpurin.reproduce.source import Source, describe_line

LABELS = {
    "first-order": "first order, all samples",
    "batch": "batch gradient (Eq. 7)",
    "fisher": "per-sample Fisher (Eq. 5)",
    "magnitude": "magnitude",
    "random": "random",
}
COLORS = {"first-order": "#0072b2", "batch": "#d55e00", "fisher": "#009e73"}
KINDS = {"predicted": "predicted", "measured": "zeroed", "small": "1 % step x 100"}
LOWER = 5  # deciles
COSTS = {
    "mask": "FedPURIN's score and mask",
    "mask_hessian": "the same with the quadratic term",
    "full_gradient": "gradient over all samples",
    "fisher": "per-sample Fisher",
}
SHARES = {
    "zero_gradient_float32": "zero gradients, float32",
    "zero_gradient_float16": "zero gradients, float16",
    "at_floor_float32": "scores ≤ 1e-10, float32",
    "at_floor_float16": "scores ≤ 1e-10, float16",
    "kept_without_floor": "kept without the floor",
    "kept_float32": "kept, float32",
    "kept_float16": "kept, float16",
}


def lines(source: Source) -> list[dict[str, Any]]:
    """The lines of check-perturbation: all of them, of whatever scale, where no data set was asked for."""
    return source.lines("perturbation", source.request.datasets or DATASETS)


def decile_table(line: dict[str, Any]) -> MarkupTable:
    rows: list[list[Item]] = []
    for name, changes in line["scores"].items():
        for kind, words in KINDS.items():
            if changes[kind][0] is not None:
                values = [f"{v:+.3f}" for v in changes[kind]]
                rows.append([f"{LABELS[name]}: {words}", *values, f"{sum(changes[kind][:LOWER]):+.2f}"])
    notes = [
        f"Change of the mean training loss ({line['loss']:.3f} before) when one decile of every layer, by "
        f"score, is set to zero; last column: sum of deciles 1 to 5. {describe_line(line)}; mean of "
        f"{line['clients']} clients trained alone."
    ]
    header = ["decile", *(str(i) for i in range(1, 11)), "1-5"]
    return MarkupTable("Change of the loss by score decile.", header, rows, notes)


def half_table(source: Source) -> MarkupTable:
    """The lower half of every layer zeroed at once: what a mask with tau = 0.5 does."""
    rows: list[list[Item]] = []
    for line in lines(source):
        for name, loss in line.get("half_loss", {}).items():
            change = 100 * (line["half_accuracy"][name] - line["accuracy"])
            rows.append([f"{describe_line(line)}: {LABELS[name]}", f"{loss:+.3f}", f"{change:+.1f}"])
    notes = [
        "The lower half of every layer, by score, set to zero at once; test accuracy in percentage points."
    ]
    header = ["lower half zeroed by", "change of the training loss", "change of the test accuracy"]
    return MarkupTable("The lower half zeroed.", header, rows, notes)


def cost_table(source: Source) -> MarkupTable:
    """Seconds of scoring beside one round's local training."""
    rows: list[list[Item]] = []
    for line in lines(source):
        s = line["seconds"]
        shares = [f"{100 * s[name] / s['training']:.1f} %" if name in s else "-" for name in COSTS]
        rows.append([describe_line(line), f"{s['training']:.2f} s", *shares])
    samples = ", ".join(sorted({str(line["config"]["data"]["train_samples"]) for line in lines(source)}))
    notes = [f"Processor time of one core, {samples} samples; the more samples, the smaller the shares."]
    return MarkupTable("Cost of scoring.", ["", "local training, one round", *COSTS.values()], rows, notes)


def floor_table(source: Source) -> MarkupTable:
    """What float16 and the floor of 1e-10 do."""
    rows: list[list[Item]] = []
    for line in lines(source):
        shares = [f"{100 * line['shares'][name]:.1f} %" for name in SHARES]
        rows.append([describe_line(line), f"{line['loss']:.4f}", *shares])
    notes = ["Share of the exchanged parameters, τ = 0.5, last mini-batch."]
    return MarkupTable("float16 and the floor.", ["", "training loss", *SHARES.values()], rows, notes)


def decile_figure(line: dict[str, Any], out: Path) -> list[Path]:
    """A panel per score: bars measured, line predicted; magnitude's deciles in each for comparison."""
    with matplotlib_style():
        figure, axes = new_figure((10.4, 3.3), ncols=3, sharey=True)
        x, square = np.arange(1, 11), {"linestyle": ":", "marker": "s", "markersize": 4}
        plain = {"linestyle": "none", "marker": "_", "markersize": 15, "markeredgewidth": 1.8}
        for axis, (name, color) in zip(axes[0], COLORS.items(), strict=True):
            changes = line["scores"][name]
            axis.bar(x, changes["measured"], 0.8, color=color, alpha=0.45, label="measured, set to zero")
            if "magnitude" in line["scores"]:
                lowest = line["scores"]["magnitude"]["measured"]
                axis.plot(x, lowest, color="#111111", label="measured, set to zero by magnitude", **plain)
            axis.plot(x, changes["small"], color="#444444", label="measured, 1 % step x 100", **square)
            axis.plot(x, changes["predicted"], color=color, marker="o", markersize=4.5, label="predicted")
            axis.set_title(LABELS[name], fontsize=11)
            axis.set_xticks(x)
            axis.set_xlabel("score decile (10: highest)")
            axis.grid(axis="x", visible=False)
            axis.set_yscale("symlog", linthresh=0.01)
        axes[0][0].set_ylabel("change of the loss")
        legend_below(figure, legend_entries(axes[0][:1]), 4)
        config = line["config"]
        return save(figure, out, f"perturbation-{config['data']['dataset']}-t{config['run']['rounds']}")
