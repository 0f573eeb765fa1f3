"""Bars and curves: the paper's figures from the store, as PNG and PDF."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.files import write_with, writing
from fedpurin.report.style import DASHES, look, matplotlib_style
from fedpurin.reproduce.recipes import Column, Recipe, Variant
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import Source, column_label, dataset_label

LINES = (("#d55e00", "-"), ("#0072b2", "--"), ("#009e73", "-."), ("#e69f00", ":"))
TAU_COLORS = ("#b9d7ea", "#7fb3d5", "#3f86b8", "#d55e00", "#08306b")  # a ramp; the paper's choice stands out
OTHER_DASHES: tuple[Any, ...] = (":", "-.", (0, (1, 3)), "--", (0, (6, 2, 1, 2)))
LONG = 100  # rounds from which a zigzag line is thin
LEGEND_WIDTH = 70  # characters below a single panel


def save(figure: Any, out: Path, name: str) -> list[Path]:
    """PNG and PDF, each whole or not at all; without a date, so that the same numbers give the same files."""
    without = {"png": ("Software",), "pdf": ("CreationDate", "Producer", "Creator")}
    files = [out / f"{name}.{kind}" for kind in without]
    for file, (kind, keys) in zip(files, without.items(), strict=True):
        draw = partial(figure.savefig, format=kind, metadata=dict.fromkeys(keys), bbox_inches="tight")
        with writing(file):
            out.mkdir(parents=True, exist_ok=True)
            write_with(file, draw)
    return files


def line_look(method: str, place: int = 0) -> tuple[str, Any]:
    """Colour and dash of a method; its second, third, ... setting has other dashes."""
    own = look(method)
    return own.color, OTHER_DASHES[(place - 1) % len(OTHER_DASHES)] if place else DASHES[own.dash]


def new_figure(figsize: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(squeeze=False, **options)


# Grouped bars


def bars(source: Source, recipe: Recipe, out: Path) -> list[Path]:
    """One panel per data set, one group per alpha, FedPURIN's height as a dashed line across its group."""
    columns = [c for c in recipe.columns(source.request) if _bar_heights(source, recipe, c)]
    if not columns:
        return []
    datasets = list(dict.fromkeys(dataset for dataset, _ in columns))
    with matplotlib_style():
        widths = [1 + sum(d == name for d, _ in columns) for name in datasets]
        size = (max(5.6, 1.15 * sum(widths)), 3.6)
        figure, axes = new_figure(size, ncols=len(datasets), width_ratios=widths)
        for axis, dataset in zip(axes[0], datasets, strict=True):
            _bar_panel(axis, source, recipe, [c for c in columns if c[0] == dataset])
            axis.set_title(dataset_label(dataset))
        axes[0][0].set_ylabel("accuracy (%)")
        named = legend_entries(axes[0][:1])
        if "paper" in named:  # last in the legend
            named["paper"] = named.pop("paper")
        legend_below(figure, named, _legend_columns(named, len(datasets)))
        return save(figure, out, figure_name("bars", source))


def legend_entries(axes: Iterable[Any]) -> dict[str, Any]:
    """Label to handle, each label once."""
    pairs = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
    return {label: handle for panel in pairs for handle, label in panel}


def legend_below(figure: Any, named: dict[str, Any], columns: int) -> None:
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns)


def _legend_columns(labels: Collection[str], panels: int) -> int:
    """One line below several panels; below a single one as few even lines as fit its width."""
    if panels > 1:
        return len(labels)
    fitting = max(1, min(4, LEGEND_WIDTH // (6 + max(len(label) for label in labels))))
    return math.ceil(len(labels) / math.ceil(len(labels) / fitting))


def _bar_heights(source: Source, recipe: Recipe, column: Column) -> dict[str, list[float]]:
    rows = recipe.chosen_rows(source.request)
    heights = {row.id: [r.best() for r in source.records(recipe, row, column)] for row in rows}
    return {name: values for name, values in heights.items() if values}


def _bar_panel(axis: Any, source: Source, recipe: Recipe, columns: list[Column]) -> None:
    rows = recipe.chosen_rows(source.request)
    lowest, highest = 100.0, 0.0
    for place, column in enumerate(columns):
        heights = _bar_heights(source, recipe, column)
        shown = [row for row in rows if row.id in heights]
        width = 0.84 / len(shown)
        for i, row in enumerate(shown):
            x, values = place + (i - (len(shown) - 1) / 2) * width, heights[row.id]
            mean = float(np.mean(values))
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            axis.bar(
                x, mean, width * 0.9, color=line_look(row.method)[0], label=row.label, yerr=spread,
                error_kw={"elinewidth": 0.9, "ecolor": "#333333", "capsize": 2},
            )  # fmt: skip
            expected = source.paper.number("accuracy", row.id, *column)
            if expected is not None:
                axis.plot(
                    [x], [expected], marker="D", markersize=4, color="white", markeredgecolor="#222222",
                    linestyle="none", label="paper", zorder=5,
                )  # fmt: skip
            lowest = min(lowest, mean - (spread or 0), expected if expected is not None else 100)
            highest = max(highest, mean + (spread or 0), expected or 0)
        if "fedpurin" in heights:
            level, color = float(np.mean(heights["fedpurin"])), look("fedpurin").color
            axis.hlines(level, place - 0.45, place + 0.45, color=color, linestyle="--", linewidth=1.2)
    axis.set_xticks(range(len(columns)), [f"α = {alpha:g}" for _, alpha in columns])
    axis.set_xlim(-0.6, len(columns) - 0.4)
    room = max(2.0, highest - lowest)
    axis.set_ylim(max(0, lowest - 0.35 * room), min(100, highest + 0.12 * room))
    axis.grid(axis="x", visible=False)


# Accuracy over rounds


def curves(source: Source, recipe: Recipe, out: Path) -> list[Path]:
    """One panel per column; a line per row: mean over seeds, band from the lowest to the highest seed."""
    columns = [c for c in recipe.columns(source.request) if rows_with_data(source, recipe, c)]
    if not columns:
        return []
    with matplotlib_style():
        figure, axes = new_figure((max(5.6, 3.9 * len(columns)), 3.9), ncols=len(columns))
        for axis, column in zip(axes[0], columns, strict=True):
            for place, row in enumerate(recipe.chosen_rows(source.request)):
                records = source.records(recipe, row, column)
                if records:
                    _line(axis, records, row, place, by_method=recipe.name == "figure-rounds")
            beta_line(axis, source, recipe, column)
            if recipe.name == "figure-rounds":
                _authors(axis, source, column)
            axis.set_title(column_label(column))
            axis.set_xlabel("round")
            axis.xaxis.get_major_locator().set_params(integer=True)
        axes[0][0].set_ylabel("accuracy as uploaded (%)")
        named = legend_entries(axes[0][:1])
        legend_below(figure, named, _legend_columns(named, len(columns)))
        return save(figure, out, figure_name(recipe.name.removeprefix("figure-"), source))


def rows_with_data(source: Source, recipe: Recipe, column: Column) -> list[Variant]:
    return [row for row in recipe.chosen_rows(source.request) if source.records(recipe, row, column)]


def _line(axis: Any, records: Sequence[Record], row: Variant, place: int, *, by_method: bool) -> None:
    length = min(record.done for record in records)
    values_st = np.array([100 * record.curve()[:length] for record in records])
    rounds, mean_t = np.arange(1, length + 1), values_st.mean(axis=0)
    if by_method:
        color, dash = line_look(row.method)
    elif row.id.startswith("tau-"):
        color, dash = TAU_COLORS[place % len(TAU_COLORS)], "-"
    else:
        color, dash = LINES[place % len(LINES)]
    width = (2.4 if row.id == "fedpurin" and by_method else 1.7) * (0.6 if length > LONG else 1)
    axis.plot(rounds, mean_t, color=color, linestyle=dash, label=row.label, linewidth=width)
    if len(values_st) > 1:
        lowest, highest = values_st.min(axis=0), values_st.max(axis=0)
        axis.fill_between(rounds, lowest, highest, color=color, alpha=0.15, linewidth=0)


def beta_line(axis: Any, source: Source, recipe: Recipe, column: Column) -> None:
    rows = rows_with_data(source, recipe, column)
    records = [r for row in rows for r in source.records(recipe, row, column)]
    beta = recipe.beta(source.request, rows, column)
    if beta is not None and max(r.done for r in records) > beta:
        axis.axvline(beta, color="#999999", linewidth=0.9, linestyle=(0, (2, 2)))
        axis.annotate(
            "β", (beta, 1), xycoords=("data", "axes fraction"), xytext=(3, -10), textcoords="offset points"
        )


def _authors(axis: Any, source: Source, column: Column) -> None:
    """The first rounds of the authors' program, which exist for one setting."""
    if column != ("cifar-10", 0.5):
        return
    for method, marker in (("fedpurin", "o"), ("fedavg", "s")):
        values, own = 100 * np.array(source.paper.first_rounds(method)), look(method)
        axis.plot(
            np.arange(1, len(values) + 1), values, linestyle="none", marker=marker, markersize=4,
            markerfacecolor="none", color=own.color, label=f"authors' {own.label}",
        )  # fmt: skip


def figure_name(kind: str, source: Source) -> str:
    """The figure's file without its ending: what was asked for, --method and --set included."""
    request = source.request
    parts = [kind, request.scale, *request.datasets, *(f"a{a:g}" for a in request.alphas), *request.methods]
    parts += [f"t{request.rounds}"] if request.rounds else []
    parts += [f"{key}{value}" for section in request.changes.values() for key, value in section.items()]
    return re.sub(r"[^\w.-]+", "_", "-".join(parts))  # a value may be a path
