"""Accuracy against what travelled per client until then, or against the time that takes on a link."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpurin.report.chart import Chart, Control, Definition, Missing, View
from fedpurin.report.marks import Axis, Line, Mark, Panel, Picture
from fedpurin.report.run_groups import Group, focus, measured_as, rivals
from fedpurin.report.series import (
    NO_ACCURACY,
    NOTHING_SENT,
    group_line,
    group_mib,
    moment_control,
    moments_of,
)
from fedpurin.report.units import duration, mib
from fedpurin.runs.run import MIB, Floats

LINKS = {"MiB": None, "1 Mbit/s": 1e6, "10 Mbit/s": 1e7, "100 Mbit/s": 1e8}  # bits per second
MANY_NAMES = 4  # a sentence with more of them is no longer read


def build(groups: Sequence[Group]) -> Chart | Missing:
    moments = moments_of(groups)
    if not any(group.sends for group in groups):
        return Missing(NOTHING_SENT)
    if not moments:
        return Missing(NO_ACCURACY)

    def view(moment: str, link: str) -> View:
        return View([_picture(groups, moment, link)], _sentence(groups, moment, link))

    links = {name: name if name == "MiB" else f"time at {name}" for name in LINKS}
    note = (
        "Traffic is every byte of every message, up and down, divided by the number of clients. "
        "Times are those bytes over one link of that speed, without latency, computing or waiting."
    )
    return Chart(view, [moment_control(moments, groups), Control("link", "Against", links)], note)


def seconds_for(mib: Floats, bits_per_second: float) -> Floats:
    return mib * MIB * 8 / bits_per_second


def _picture(groups: Sequence[Group], moment: str, link: str) -> Picture:
    rate = LINKS[link]
    sending = [group for group in groups if group.sends]
    totals = {group.id: group_mib(group, moment) for group in sending}
    longest = max(float(values[-1]) for values in totals.values())
    unit, scale = _time_unit(longest * MIB * 8 / rate) if rate else ("MiB", 1.0)
    marks: list[Mark] = []
    for group in sending:
        x = totals[group.id] if rate is None else seconds_for(totals[group.id], rate) / scale
        marks.append(accuracy_line(group, x, group.curve(moment), unit))
    longest_x = longest if rate is None else longest * MIB * 8 / rate / scale
    marks += [
        level for group in groups if (level := sends_nothing(group, moment, 0.0, longest_x)) is not None
    ]
    label = "MiB per client, both ways" if rate is None else f"{unit} of traffic per client at {link}"
    measure = measured_as(groups)
    y = Axis(measure.words("mean accuracy over clients"), kind=measure.kind)
    panel = Panel(Axis(label, from_zero=True), y, marks)
    return Picture(measure.words("Accuracy for the traffic"), 430, [panel])


def accuracy_line(group: Group, x: Floats, y: Floats, unit: str) -> Line:
    hover = f"round %{{customdata}}: %{{y:{measured_as([group]).hover}}} after %{{x:,.4~g}} {unit}"
    return group_line(group, x, y, hover, np.arange(1, len(x) + 1))


def sends_nothing(group: Group, moment: str, left: float, right: float) -> Line | None:
    """A method that sends nothing is a level, not a curve."""
    level = group.last_mean(moment)
    if group.sends or np.isnan(level):
        return None
    name, hover = f"{group.label} (sends nothing)", f"sends nothing: %{{y:{measured_as([group]).hover}}}"
    return Line([left, right], [level, level], name, group.color, dash="dot", width=2, hover=hover)


def _time_unit(seconds: float) -> tuple[str, float]:
    return ("seconds", 1.0) if seconds < 180 else ("minutes", 60.0) if seconds < 10_800 else ("hours", 3600.0)


def _sentence(groups: Sequence[Group], moment: str, link: str) -> str:
    """The traffic each method needs for a level that all of them reach."""
    sending = [group for group in groups if group.sends]
    sending = rivals(focus(sending), sending)
    curves = {group.id: group.curve(moment) for group in sending}
    tops = [float(np.nanmax(curve)) for curve in curves.values() if not np.isnan(curve).all()]
    if not tops:
        return "No client was measured at this moment."
    target = np.floor(100 * min(tops)) / 100
    level = measured_as(groups).text(target, 0)
    needs: dict[str, float] = {}
    for group in sending:
        first = np.flatnonzero(curves[group.id] >= target)
        if len(first):
            needs[group.label] = float(group_mib(group, moment)[first[0]])
    rate = LINKS[link]
    ordered = sorted(needs.items(), key=lambda item: item[1])
    told = [f"{name} {mib(v) if rate is None else duration(v * MIB * 8 / rate)}" for name, v in ordered]
    if len(told) == 1:
        return f"To reach {level}, a client's traffic is: {told[0]}."
    shown = told if len(told) <= MANY_NAMES else [*told[:2], f"... {told[-1]}"]
    return f"Traffic per client to reach {level}, which all of them reach: {', '.join(shown)}."


CHART = Definition("traffic", "Accuracy for the traffic", 30, build)
