"""Which parameters are critical: the kept share per layer over rounds, and how often each was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.report.collaboration import spread
from fedpurin.report.groups import Group, focus_first
from fedpurin.report.load import Floats
from fedpurin.report.series import SELECTION_LABELS, selection
from fedpurin.report.views import (
    Chart,
    Control,
    Missing,
    View,
    colorbar,
    figure,
    name_colors,
    percent,
    safe,
    small,
)

MAX_COLUMNS = 150
MAX_NAME = 26
# From never to always: a sequence of lightness that also prints in grey.
SELECTION_COLORS = ("#d55e00", "#d6e4f2", "#a8c8e4", "#6fa7d3", "#3884bd", "#0a5c96")


def kept_shares(group: Group) -> tuple[list[str], list[int], Floats]:
    """Layers, rounds shown, and shares [layers, rounds] averaged over the seeds."""
    tables = [run.kept() for run in group.runs]
    names = list(dict.fromkeys(name for layers, _ in tables for name in layers))
    total = np.full((len(tables), len(names), group.rounds), np.nan)
    for s, (layers, shares) in enumerate(tables):
        for layer, row in zip(layers, shares, strict=True):
            total[s, names.index(layer), : len(row)] = row
    known = ~np.isnan(total)
    mean = np.where(known, total, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    mean[~known.any(axis=0)] = np.nan
    rounds = [t + 1 for t in range(group.rounds) if not np.isnan(mean[:, t]).all()]
    rounds = spread(rounds, MAX_COLUMNS)
    return names, rounds, mean[:, [t - 1 for t in rounds]]


def short_names(names: list[str]) -> list[str]:
    """Layer names that fit beside a chart: without ".weight", and with only the end of very long ones."""
    cut = [name.removesuffix(".weight") for name in names]
    cut = [name if len(name) <= MAX_NAME else "…" + name[-MAX_NAME + 1 :] for name in cut]
    return [safe(name) for name in (cut if len(set(cut)) == len(cut) else names)]


def coverage_figure(group: Group) -> Any:
    names, rounds, shares = kept_shares(group)
    made = figure(140 + max(160, 26 * len(names)), "round", "")
    made.add_heatmap(
        z=small(shares),
        x=np.array(rounds, dtype=np.int32),
        y=short_names(names),
        zmin=0,
        zmax=1,
        autocolorscale=True,
        colorbar=colorbar(".0%"),
        ygap=2,
        hovertemplate="%{y}, round %{x}: %{z:.2%}<extra></extra>",
    )
    made.update_yaxes(autorange="reversed", showgrid=False, type="category")
    made.update_xaxes(showgrid=False, tickformat="d")
    name_colors(made, "share of critical parameters, by round")
    for name, share in zip(short_names(names), shares[:, -1], strict=True):
        if not np.isnan(share):
            made.add_annotation(
                x=1,
                xref="paper",
                y=name,
                text=percent(share, 0),
                showarrow=False,
                xanchor="left",
                xshift=6,
            )
    made.update_layout(margin={"r": 54})
    return made


def coverage_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Critical parameters per layer"
    able = [group for group in groups if any(run.kept()[0] for run in group.runs)]
    if not able:
        return Missing(title, "none of these methods selects critical parameters (FedCAC and FedPURIN do)")
    able = focus_first(able)
    views = {(group.id,): View([coverage_figure(group)], coverage_sentence(group)) for group in able}
    control = Control("method", "Method", {group.id: group.label for group in able})
    note = "Mean over clients, per exchanged layer in the model's order; on the right the last round's share."
    if any(group.rounds > MAX_COLUMNS for group in able):
        note += f" {MAX_COLUMNS} rounds, evenly spaced, are shown."
    return Chart("coverage", title, views, [control], note)


def coverage_sentence(group: Group) -> str:
    names, _, shares = kept_shares(group)
    first, last = shares[:, 0], shares[:, -1]
    moved = np.nan_to_num(last - first)
    low, high = percent(np.nanmin(last)), percent(np.nanmax(last))
    kept = f"{low} of every layer" if low == high else f"{low} to {high} of a layer"
    text = f"{group.label} keeps {kept} in the last round"
    far = int(np.abs(moved).argmax())
    if abs(moved[far]) < 0.005:
        return text + "; no layer has moved by more than half a point since the first."
    way = "falls" if moved[far] < 0 else "rises"
    return text + f"; {names[far]} {way} most, from {percent(first[far])} to {percent(last[far])}."


def selection_figure(group: Group) -> Any:
    found = selection(group.runs[0])
    assert found is not None
    names, shares = found
    made = figure(130 + max(150, 28 * len(names)), "share of the layer", "", barmode="stack", bargap=0.25)
    made.update_layout(legend={"traceorder": "normal"})
    for k, label in enumerate(SELECTION_LABELS):
        made.add_bar(
            y=short_names(names),
            x=small(shares[:, k]),
            orientation="h",
            name=label,
            marker={"color": SELECTION_COLORS[k], "line": {"width": 0}},
            hovertemplate="%{y}: %{x:.1%} " + label + "<extra></extra>",
        )
    made.update_yaxes(autorange="reversed", showgrid=False, type="category")
    made.update_xaxes(tickformat=".0%", range=[0, 1])
    return made


def selection_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "How often parameters are critical"
    able = [group for group in groups if selection(group.runs[0]) is not None]
    if not able:
        return Missing(title, "the runs have no coverage.safetensors, which only methods with masks write")
    able = focus_first(able)
    views = {(group.id,): View([selection_figure(group)], selection_sentence(group)) for group in able}
    control = Control("method", "Method", {group.id: group.label for group in able})
    stored = able[0].runs[0].coverage()
    clients = len(stored["client_ids"]) if stored and "client_ids" in stored else 0
    note = (
        "Parameters by the share of rounds in which they were critical, "
        f"counted for the first {clients} clients, first seed."
    )
    return Chart("selection", title, views, [control], note)


def selection_sentence(group: Group) -> str:
    found = selection(group.runs[0])
    assert found is not None
    names, shares = found
    never, always = shares[:, 0], shares[:, -1]
    worst = int(never.argmax())
    if never[worst] == 0:
        most = percent(always.max())
        return f"{group.label}: every parameter was critical at least once; up to {most} of a layer always."
    return (
        f"{group.label}: {names[worst]} has the most parameters that were never critical, "
        f"{percent(never[worst])}; {names[int(always.argmax())]} the most that always were, "
        f"{percent(always.max())}."
    )
