"""How often parameters are critical: never, sometimes, always, per layer."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.marks import Axis, Bars, Mark, Panel, Picture
from fedpurin.report.measure import percent
from fedpurin.report.run_groups import Group, Groups, focus_first
from fedpurin.report.series import one_at_a_time, short_names
from fedpurin.runs.run import Floats, Run

# From never to always: a sequence of lightness that also prints in grey.
KINDS = {
    "never": "#d55e00",
    "≤ 1/4": "#d6e4f2",
    "≤ 1/2": "#a8c8e4",
    "≤ 3/4": "#6fa7d3",
    "< all": "#3884bd",
    "always": "#0a5c96",
}
Shares = tuple[list[str], Floats]  # layers, [layers, kinds]


def build(groups: Groups) -> Chart | Missing:
    shares = {group.id: counted for group in groups if (counted := selection(group.runs[0])) is not None}
    if not shares:
        return Missing("the runs have no coverage.safetensors, which only methods with masks write")
    able = focus_first([group for group in groups if group.id in shares])

    def view(group: Group) -> View:
        names, kinds = shares[group.id]
        return View([_picture(group.label, names, kinds)], _sentence(group.label, names, kinds))

    stored = able[0].runs[0].coverage() or {}
    note = (
        "Parameters by the share of rounds in which they were critical, "
        f"counted for the first {len(stored.get('client_ids', ()))} clients, first seed."
    )
    return one_at_a_time(able, view, note)


def selection(run: Run) -> Shares | None:
    """Per exchanged layer, the shares of parameters critical in 0, up to 1/4, 1/2, 3/4, <1 and all rounds."""
    stored = run.coverage()
    layers = [layer for layer in run.layers if layer.get("exchanged")]
    if stored is None or not layers:
        return None
    counts_cd, rounds = stored["client_counts"], int(stored["rounds"][0])
    if rounds < 1:
        return None
    quarters = 1 + (4 * counts_cd.astype(np.int64) - 1) // rounds
    kinds = np.where(counts_cd == 0, 0, np.where(counts_cd >= rounds, 5, quarters))
    parts = np.split(kinds, np.cumsum([layer["size"] for layer in layers])[:-1], axis=1)
    shares = [np.bincount(part.ravel(), minlength=len(KINDS)) / part.size for part in parts]
    return [layer["name"] for layer in layers], np.array(shares)


def _picture(label: str, names: list[str], shares: Floats) -> Picture:
    places = np.arange(len(names))
    marks: list[Mark] = [
        Bars(places, shares[:, k], kind, color, across=True, hover="%{y}: %{x:.1%} " + kind)
        for k, (kind, color) in enumerate(KINDS.items())
    ]
    x = Axis("share of the layer", kind="share", range=(0, 1))
    panel = Panel(x, Axis(names=short_names(names), reversed=True, grid=False), marks)
    title = f"{label}: how often parameters are critical"
    return Picture(title, 130 + max(150, 28 * len(names)), [panel])


def _sentence(label: str, names: list[str], shares: Floats) -> str:
    never, always = shares[:, 0], shares[:, -1]
    worst = int(never.argmax())
    most = percent(always.max())
    if never[worst] == 0:
        return f"{label}: every parameter was critical at least once; up to {most} of a layer always."
    return (
        f"{label}: {names[worst]} has the most parameters that were never critical, "
        f"{percent(never[worst])}; {names[int(always.argmax())]} the most that always were, {most}."
    )


CHART = Definition("selection", "How often parameters are critical", 100, build)
