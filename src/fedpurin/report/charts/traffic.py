"""Accuracy against what travelled per client until then, or against the time that takes on a link."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Control, Definition, Missing, View
from fedpurin.report.marks import Axis, Line, Mark, Panel, Picture
from fedpurin.report.measure import duration, mib
from fedpurin.report.run_groups import Group, Groups, focus, measured_as, rivals
from fedpurin.report.series import NO_ACCURACY, NOTHING_SENT, group_line, measure_axis, moment_control
from fedpurin.runs.run import MIB, Floats

LINKS = {"MiB": None, "1 Mbit/s": 1e6, "10 Mbit/s": 1e7, "100 Mbit/s": 1e8}  # bits per second
MANY_NAMES = 4  # a sentence with more of them is no longer read


def build(groups: Groups) -> Chart | Missing:
    moment_choice = moment_control(groups)
    if not any(group.sends for group in groups):
        return Missing(NOTHING_SENT)
    if not moment_choice.options:
        return Missing(NO_ACCURACY)

    def view(moment: str, link: str) -> View:
        return View([_picture(groups, moment, link)], _sentence(groups, moment, link))

    links = {name: name if name == "MiB" else f"time at {name}" for name in LINKS}
    note = (
        "Traffic is every byte of every message, up and down, divided by the number of clients. "
        "Times are those bytes over one link of that speed, without latency, computing or waiting."
    )
    return Chart(view, [moment_choice, Control("link", "Against", links)], note)


def seconds_for(mib: Floats, bits_per_second: float) -> Floats:
    return mib * MIB * 8 / bits_per_second


def _picture(groups: Groups, moment: str, link: str) -> Picture:
    rate = LINKS[link]
    unit, scale, label = "MiB", 1.0, "MiB per client, both ways"
    sending = [group for group in groups if group.sends]
    places = [group.traffic(moment) for group in sending]
    if rate is not None:
        places = [seconds_for(sent, rate) for sent in places]
        unit, scale = _time_unit(max(at[-1] for at in places))
        label = f"{unit} of traffic per client at {link}"
    marks: list[Mark] = [
        accuracy_line(group, at / scale, group.curve(moment), unit)
        for group, at in zip(sending, places, strict=True)
    ]
    marks += silent_lines(groups, moment, 0.0, max(float(at[-1]) for at in places) / scale)
    panel = Panel(Axis(label, from_zero=True), measure_axis(groups), marks)
    return Picture(measured_as(groups).words("Accuracy for the traffic"), 430, [panel])


def accuracy_line(group: Group, x: Floats, y: Floats, unit: str) -> Line:
    hover = f"round %{{customdata}}: %{{y:{measured_as([group]).hover}}} after %{{x:,.4~g}} {unit}"
    return group_line(group, x, y, hover, np.arange(1, len(x) + 1))


def silent_lines(groups: Groups, moment: str, left: float, right: float) -> list[Line]:
    """A method that sends nothing is a level, not a curve."""
    lines = []
    for group in groups:
        level = group.last_mean(moment)
        if not group.sends and not np.isnan(level):
            name = f"{group.label} (sends nothing)"
            hover = f"sends nothing: %{{y:{measured_as([group]).hover}}}"
            x, y = [left, right], [level, level]
            lines.append(Line(x, y, name, group.color, dash="dot", width=2, hover=hover))
    return lines


def _time_unit(seconds: float) -> tuple[str, float]:
    return ("seconds", 1.0) if seconds < 180 else ("minutes", 60.0) if seconds < 10_800 else ("hours", 3600.0)


def _sentence(groups: Groups, moment: str, link: str) -> str:
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
            needs[group.label] = float(group.traffic(moment)[first[0]])
    rate = LINKS[link]
    ordered = sorted(needs.items(), key=lambda item: item[1])
    told = [f"{name} {mib(v) if rate is None else duration(v * MIB * 8 / rate)}" for name, v in ordered]
    if len(told) == 1:
        return f"To reach {level}, a client's traffic is: {told[0]}."
    shown = told if len(told) <= MANY_NAMES else [*told[:2], f"... {told[-1]}"]
    return f"Traffic per client to reach {level}, which all of them reach: {', '.join(shown)}."


CHART = Definition("traffic", "Accuracy for the traffic", 30, build)
