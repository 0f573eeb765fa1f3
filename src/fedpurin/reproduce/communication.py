"""MiB per client and round, before and after beta, by the paper's rule and as sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.report.style import matplotlib_style
from fedpurin.reproduce import paper_figures as draw
from fedpurin.reproduce.markup import Entry, Item, MarkupTable
from fedpurin.reproduce.recipes import RECIPES, Recipe
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import option
from fedpurin.reproduce.source import Source, column_label, scale_text

WAYS = ("up", "down")
# ResNet-10's fourth stage: a 3 x 3 kernel over a 1 x 1 map uses one of nine weights, with stride 2 four.
UNUSED = 256 * 512 * 5 + 512 * 512 * 8


def traffic(records: list[Record], rule: str = "_paper") -> list[float | None]:
    """MiB per client and round as the paper counts, or as sent with the rule "".

    Up before beta, up after, down before, down after; None where there is no such round.
    """
    means: list[float | None] = []
    for way in WAYS:
        parts = [split_at_beta(record, way + rule) for record in records]
        for side in (0, 1):
            values = np.concatenate([part[side] for part in parts])
            means.append(float(values.mean()) if len(values) else None)
    return means


def split_at_beta(record: Record, name: str) -> tuple[np.ndarray, np.ndarray]:
    """MiB of the rounds up to beta and after it; the same rounds twice for a method without beta."""
    values = series(record, name)
    if record.beta is None:
        return values, values
    return values[: record.beta], values[record.beta :]


def series(record: Record, name: str) -> np.ndarray:
    """[T] MiB per client and round: up or down as sent; up_paper or down_paper as the paper counts.

    Until beta the paper counts a client's critical part as sent down, always. We do not send it to a client
    without collaborators, for whom it is its own; a small beta makes many such.
    """
    values, line, beta = record.mib(name), record.line, record.beta
    d, method = line["exchanged"], record.config.run.method
    if name == "down_paper" and method == "fedcac":
        values[:beta] = 4 * d / 2**20
    elif name == "down_paper" and method == "fedpurin" and any(line["bytes"]["outside"]):
        outside = 4 * np.array(line["bytes"]["outside"], dtype=np.float64)[: len(values)]
        critical = np.array(line["bytes"]["up_paper"], dtype=np.float64)[: len(values)] - -(-d // 8)
        values[:beta] = (outside + critical)[:beta] / 2**20
    return values


def communication_table(source: Source, recipe: Recipe) -> MarkupTable:
    rows: list[list[Item]] = []
    for column in recipe.columns(source.request):
        for row in recipe.chosen_rows(source.request):
            records = source.records(recipe, row, column)
            if not records:
                continue
            values = traffic(records) + traffic(records, "")
            expected = source.paper.traffic(*column, row.method) or []
            pairs = zip_longest(values, expected)
            items = ["-" if value is None else Entry(value, None, paper) for value, paper in pairs]
            mark = "" if all(r.complete for r in records) else f" † {min(r.done for r in records)} rounds"
            rows.append([f"{column_label(column)}: {row.label}{mark}", *items])
    header = ["", "up, t ≤ β", "up, t > β", "down, t ≤ β", "down, t > β"]
    header += [f"{name} as sent" for name in header[1:]]
    notes = [
        "MiB (2^20 bytes) per client and round by the paper's counting rule, in brackets the paper's value "
        "and our difference (until β the critical part counts as sent to everybody, as there); then the "
        "bytes really sent, headers and metrics included. " + scale_text(source, recipe)
    ]
    if source.request.scale != "paper" or source.request.rounds:
        notes.append(
            "The paper's figures are means over a hundred or more rounds on each side of β; ours over the "
            "rounds of our scale, and masks shrink as training converges."
        )
    return MarkupTable("Communication.", header, rows, notes)


def kept_table(source: Source) -> MarkupTable:
    """Layers of FedPURIN's uploads that keep clearly less than tau, in the first and in the last round."""
    rows: list[list[Item]] = []
    recipe = RECIPES["table-communication"]
    for column in recipe.columns(source.request):
        for record in source.records(recipe, recipe.row("fedpurin"), column):
            tau, where = option(record.config, "tau"), column_label(column)
            layers = record.line["kept"].items()
            kept = {name: [share for share in shares if share is not None] for name, shares in layers}
            less = {name: shares for name, shares in kept.items() if shares and min(shares) < tau - 0.01}
            for name, shares in less.items():
                first, last = (f"{100 * share:.1f} %" for share in (shares[0], shares[-1]))
                rows.append([f"{where}: {name}", first, last])
            others = f"{'the other' if less else 'all'} {len(kept) - len(less)} layers"
            rows.append([f"{where}: {others}", *[f"τ = {100 * tau:.0f} %"] * 2])
    header = ["", "kept, first round", "kept, last round"]
    return MarkupTable("Layers that keep less than τ.", header, rows, [])


def used(dense: list[Record]) -> float:
    """MiB of a round of FedAvg on CIFAR-100 without the weights that no client ever uses."""
    full = traffic(dense)[0]
    assert full is not None
    return full - 4 * UNUSED / 2**20


def saved_of_used(purin: list[Record], dense: list[Record]) -> float:
    """Percent saved of these, up, until beta."""
    sent = traffic(purin)[0]
    assert sent is not None
    return 100 * (1 - sent / used(dense))


def saving(purin: list[Record], dense: list[Record], share_before: float) -> tuple[float, float]:
    """Percent saved against FedAvg by the paper's rule, up and down, with beta's share of the rounds."""
    ours, theirs = traffic(purin), traffic(dense)
    saved = []
    for before, after in ((0, 1), (2, 3)):
        low, high = ours[before], ours[after]
        full = theirs[before]
        assert low is not None
        assert full is not None
        mean = low if high is None else share_before * low + (1 - share_before) * high
        saved.append(100 * (1 - mean / full))
    return saved[0], saved[1]


# The figure


def bytes_figure(source: Source, recipe: Recipe, out: Path) -> list[Path]:
    """A line of panels per column, up and down; broad pale bars are the paper's means."""
    columns = [c for c in recipe.columns(source.request) if draw.rows_with_data(source, recipe, c)]
    if not columns:
        return []
    with matplotlib_style():
        size = (7.4, 0.9 + 2.6 * len(columns))
        figure, axes = draw.new_figure(size, nrows=len(columns), ncols=2, sharex="row")
        for line, column in zip(axes, columns, strict=True):
            for axis, way in zip(line, WAYS, strict=True):
                for row in draw.rows_with_data(source, recipe, column):
                    records = source.records(recipe, row, column)
                    levels = source.paper.traffic(*column, row.method)
                    start = 2 * WAYS.index(way)
                    draw_lines(axis, records, row.label, way, levels and levels[start : start + 2])
                draw.beta_line(axis, source, recipe, column)
                axis.set_title(f"{column_label(column)}, {way}")
                axis.set_ylim(0, 1.12 * axis.get_ylim()[1])  # room for the mark of beta
                axis.xaxis.get_major_locator().set_params(integer=True)
            line[0].set_ylabel("MiB per client")
        for axis in axes[-1]:
            axis.set_xlabel("round")
        named = draw.legend_entries(axes.flat)
        methods = len({label.partition(",")[0] for label in named})  # each in its own column
        draw.legend_below(figure, named, methods if methods > 1 else len(named))
        return draw.save(figure, out, draw.figure_name("bytes", source))


def draw_lines(
    axis: Any, records: Sequence[Record], label: str, way: str, levels: Sequence[float] | None
) -> None:
    """The paper's rule as a strong line, the bytes sent as a dotted one; means over seeds."""
    color, dash = draw.line_look(records[0].config.run.method)
    ruled, sent = (_mean([series(record, name) for record in records]) for name in (f"{way}_paper", way))
    rounds = np.arange(1, len(ruled) + 1)
    axis.plot(rounds, ruled, color=color, linestyle=dash, label=f"{label}, paper's rule")
    axis.plot(rounds, sent, color=color, linestyle=":", linewidth=1.3, label=f"{label}, as sent")
    edges, printed = (1, records[0].beta or len(ruled), len(ruled)), f"{label}, the paper's mean"
    for level, first, last in zip(levels or (), edges, edges[1:], strict=False):
        if last > first:
            axis.hlines(level, first, last, color=color, linewidth=5, alpha=0.25, label=printed)


def _mean(runs: Sequence[np.ndarray]) -> np.ndarray:
    """[T] over the rounds that all of them have."""
    length = min(len(values) for values in runs)
    mean: np.ndarray = np.mean([values[:length] for values in runs], axis=0)
    return mean
