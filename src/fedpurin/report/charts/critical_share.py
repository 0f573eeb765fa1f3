"""The share of critical parameters per layer, over rounds."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.marks import Axis, Heat, Panel, Picture
from fedpurin.report.measure import percent
from fedpurin.report.run_groups import Group, Groups, focus_first
from fedpurin.report.series import evenly_spaced, one_at_a_time, round_axis, short_names
from fedpurin.runs.run import Floats

MAX_COLUMNS = 150


def build(groups: Groups) -> Chart | Missing:
    able = [group for group in groups if any(run.kept()[0] for run in group.runs)]
    if not able:
        return Missing("none of these methods selects critical parameters (FedCAC and FedPURIN do)")
    note = "Mean over clients, per exchanged layer in the model's order; on the right the last round's share."
    if any(group.rounds > MAX_COLUMNS for group in able):
        note += f" {MAX_COLUMNS} rounds, evenly spaced, are shown."
    return one_at_a_time(focus_first(able), _view, note)


def _view(group: Group) -> View:
    tables = [dict(zip(*run.kept(), strict=True)) for run in group.runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    by_layer = [group.over_seeds(table[name] for table in tables if name in table) for name in names]
    shares = np.array(by_layer)
    recorded = [t + 1 for t in range(group.rounds) if not np.isnan(shares[:, t]).all()]
    rounds = evenly_spaced(recorded, MAX_COLUMNS)
    shares = shares[:, [t - 1 for t in rounds]]
    return View([_picture(group, names, rounds, shares)], _sentence(group, names, shares))


def _picture(group: Group, names: list[str], rounds: list[int], shares: Floats) -> Picture:
    hover = "%{y}, round %{x}: %{z:.2%}"
    heat = Heat(shares, "share of critical parameters", rounds, 0, 1, share=True, gaps=(0, 2), hover=hover)
    last = ["" if np.isnan(share) else percent(share, 0) for share in shares[:, -1]]
    y = Axis(names=short_names(names), reversed=True, grid=False)
    panel = Panel(round_axis(rounds[-1], grid=False), y, [heat], right=last)
    return Picture(f"{group.label}: critical parameters per layer", 160 + max(160, 26 * len(names)), [panel])


def _sentence(group: Group, names: list[str], shares: Floats) -> str:
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


CHART = Definition("coverage", "Critical parameters per layer", 90, build)
