"""MiB per client over rounds: where the means of the communication table come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.report.style import matplotlib_style
from fedpurin.reproduce.communication import series
from fedpurin.reproduce.paper_figures import (
    beta_line,
    figure_name,
    line_look,
    new_figure,
    rows_with_data,
    save,
)
from fedpurin.reproduce.recipes import Recipe
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import Source, column_label

WAYS = ("up", "down")


def bytes_figure(source: Source, recipe: Recipe, out: Path) -> list[Path]:
    """A line of panels per column, up and down; broad pale bars are the paper's means."""
    columns = [c for c in recipe.columns(source.request) if rows_with_data(source, recipe, c)]
    if not columns:
        return []
    with matplotlib_style():
        height = 0.9 + 2.6 * len(columns)
        figure, axes = new_figure(figsize=(7.4, height), nrows=len(columns), ncols=2, sharex="row")
        for line, column in zip(axes, columns, strict=True):
            for axis, way in zip(line, WAYS, strict=True):
                for row in rows_with_data(source, recipe, column):
                    records = source.records(recipe, row, column)
                    levels = source.paper.traffic(*column, row.method)
                    start = 2 * WAYS.index(way)
                    draw_lines(axis, records, row.label, way, levels and levels[start : start + 2])
                beta_line(axis, source, recipe, column)
                axis.set_title(f"{column_label(column)}, {way}")
                axis.set_ylim(0, 1.12 * axis.get_ylim()[1])  # room for the mark of beta
                axis.xaxis.get_major_locator().set_params(integer=True)
            line[0].set_ylabel("MiB per client")
        for axis in axes[-1]:
            axis.set_xlabel("round")
        named = {
            label: handle
            for axis in axes.flat
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        methods = len({label.partition(",")[0] for label in named})  # each in its own column
        figure.legend(
            named.values(),
            named.keys(),
            loc="outside lower center",
            ncols=methods if methods > 1 else len(named),
        )
        return save(figure, out, figure_name("bytes", source))


def draw_lines(
    axis: Any, records: Sequence[Record], label: str, way: str, levels: Sequence[float] | None
) -> None:
    """The paper's rule as a strong line, the bytes sent as a dotted one; means over seeds."""
    method, beta = records[0].config.run.method, records[0].beta
    color, dash = line_look(method)
    ruled = _mean([series(record, f"{way}_paper") for record in records])
    rounds = np.arange(1, len(ruled) + 1)
    axis.plot(rounds, ruled, color=color, linestyle=dash, label=f"{label}, paper's rule")
    sent = _mean([series(record, way) for record in records])
    axis.plot(rounds, sent, color=color, linestyle=":", linewidth=1.3, label=f"{label}, as sent")
    if levels is None:
        return
    edges = (1, beta or len(ruled), len(ruled))
    for level, first, last in zip(levels, edges, edges[1:], strict=False):
        if last > first:
            axis.hlines(
                level, first, last, color=color, linewidth=5, alpha=0.25, label=f"{label}, the paper's mean"
            )


def _mean(runs: Sequence[np.ndarray]) -> np.ndarray:
    length = min(len(values) for values in runs)
    mean: np.ndarray = np.mean([values[:length] for values in runs], axis=0)
    return mean
