"""Accuracy on validation samples against the MiB of a whole run: who is beaten in both by nobody."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedpurin.report.chart import Chart, Column, Control, Definition, Missing, Row, Table, View
from fedpurin.report.charts.traffic import silent_lines
from fedpurin.report.marks import Axis, Dots, Line, Mark, Panel, Picture
from fedpurin.report.measure import mib
from fedpurin.report.run_groups import Group, Groups, last_name, measured_as
from fedpurin.report.series import NOTHING_SENT, measure_axis
from fedpurin.runs.run import VALIDATION
from fedpurin.runs.traffic import fronts

FRONT_COLOR = "#888888"
SAMPLES = {VALIDATION: "validation samples", "trained": "test samples, which decide nothing"}


def build(groups: Groups) -> Chart | Missing:
    measured = [group for group in groups if any(run.measured(VALIDATION) for run in group.runs)]
    if not measured:
        return Missing("no validation samples were held out (data.validation)", listed=False)
    if not any(group.sends for group in measured):
        return Missing(NOTHING_SENT, listed=False)

    def view(samples: str) -> View:
        return View([_picture(measured, samples)], _sentence(measured), _table(measured))

    note = (
        measured_as(groups).words("Accuracy")
        + " after training, mean over clients and over the last rounds of each run. The grey line "
        "joins the runs on the front, which is drawn from the validation samples: for each of them no other "
        "run is at least as accurate with at most as many MiB."
    )
    return Chart(view, [Control("samples", "Measured on", SAMPLES)], note)


def whole_traffic(group: Group) -> float:
    """MiB per client of all rounds, both ways."""
    return float(group.traffic()[-1])


def front(groups: Groups) -> list[Group]:
    """Those that no other beats, the cheapest first."""
    places = fronts([(group.last_mean(VALIDATION), whole_traffic(group)) for group in groups])
    return sorted((g for g, place in zip(groups, places, strict=True) if place == 0), key=whole_traffic)


def _picture(groups: Groups, samples: str) -> Picture:
    measure = measured_as(groups)
    sending = [group for group in groups if group.sends]
    best = front(groups)
    places = [whole_traffic(group) for group in sending]
    left, right = min(places) / 1.4, max(places) * 1.4
    marks: list[Mark] = [_steps([g for g in best if g.sends], samples, right)] if best[-1].sends else []
    hover = f"%{{y:{measure.hover}}} for %{{x:,.4~g}} MiB"
    for group, place in zip(sending, places, strict=True):
        size, outline = (15, "#222222") if group in best else (10, "")
        dot = Dots([place], [group.last_mean(samples)], group.label, group.color, group.marker, size)
        marks.append(replace(dot, outline=outline, in_legend=True, hover=hover))
    marks += silent_lines(groups, samples, left, right)
    x = Axis("MiB per client for the whole run, both ways", kind="log", range=(left, right))
    title = measure.words("Accuracy against the traffic of a whole run")
    return Picture(title, 470, [Panel(x, measure_axis(groups), marks)])


def _steps(best: Groups, samples: str, right: float) -> Line:
    at = [(whole_traffic(group), group.last_mean(samples)) for group in best]
    corners = [at[0]]
    for (_, low), (x, high) in pairwise(at):
        corners += [(x, low), (x, high)]
    corners.append((right, at[-1][1]))
    line_x, line_y = (np.array(part) for part in zip(*corners, strict=True))
    return Line(line_x, line_y, "the front", FRONT_COLOR, dash="dot", width=1.6)


def _sentence(groups: Groups) -> str:
    told = []
    for group in front(groups):
        reached = measured_as(groups).text(group.last_mean(VALIDATION))
        told.append(f"{group.label} ({reached} for {mib(whole_traffic(group))})")
    return f"On the front, from the cheapest to the most accurate: {'; '.join(told)}."


def _table(groups: Groups) -> Table:
    measure = measured_as(groups)
    decides = measure.words("accuracy on the samples held out of training; what decides")
    columns = [
        Column("validation", "Validation", decides),
        Column("test", "Test (not used)", "the same models on the test samples; decides nothing"),
        Column("mib", "MiB", "per client, both ways, all rounds"),
        Column("rounds", "Rounds"),
        Column("front", "On the front"),
    ]
    best = front(groups)
    rows = []
    for group in sorted(groups, key=lambda g: -g.last_mean(VALIDATION)):
        cells = {
            "validation": measure.cell(group.last_mean(VALIDATION)),
            "test": measure.cell(group.last_mean("trained")),
            "mib": f"{whole_traffic(group):.3g}",
            "rounds": str(group.rounds),
            "front": "yes" if group in best else "",
        }
        rows.append(Row(group.method, group.label, group.color, cells))
    title = measure.words("Accuracy") + (" in percent" if measure.share else "")
    return Table(f"{title}, {last_name(groups).lower()}, and traffic of the whole run", columns, rows)


CHART = Definition("front", "Accuracy against traffic: the front", 8, build)
