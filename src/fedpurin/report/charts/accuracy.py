"""Mean accuracy over rounds, with the spread over clients."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Control, Definition, Missing, View
from fedpurin.report.marks import Band, Mark, Panel, Picture
from fedpurin.report.run_groups import Group, Groups, find, focus, measured_as, tasks
from fedpurin.report.series import NO_ACCURACY, group_line, measure_axis, moment_control, round_axis
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs.run import Floats

FEW_LINES = 3  # so many bands can be told apart
LOW, HIGH = 10, 90  # percentiles of the band


def build(groups: Groups) -> Chart | Missing:
    moment_choice = moment_control(groups)
    if not moment_choice.options:
        return Missing(NO_ACCURACY)
    bands = {"focus": f"of {focus(groups).label}", "all": "of all", "none": "hide"}
    if len(groups) <= FEW_LINES:
        bands = {"all": "show", "none": "hide"}

    def view(moment: str, band: str) -> View:
        shown = {"none": [], "focus": [focus(groups)], "all": groups}[band]
        return View([_picture(groups, moment, shown)], _sentence(groups, moment))

    note = f"The band spans the {LOW}th to the {HIGH}th percentile of clients"
    note += ", all seeds together." if any(len(group.runs) > 1 for group in groups) else "."
    controls = [moment_choice, Control("band", "Spread over clients", bands)]
    return Chart(view, controls, note + " Click a name to hide its line.")


def _picture(groups: Groups, moment: str, banded: Groups) -> Picture:
    marks: list[Mark] = []
    measure = measured_as(groups)
    for group in banded:
        low, high = _percentiles(group, moment)
        measured = np.flatnonzero(~np.isnan(low))
        marks.append(Band(measured + 1, low[measured], high[measured], group.label, group.color))
    for group in groups:
        rounds = np.arange(1, group.rounds + 1)
        marks.append(group_line(group, rounds, group.curve(moment), f"round %{{x}}: %{{y:{measure.hover}}}"))
    panel = Panel(round_axis(max(group.rounds for group in groups)), measure_axis(groups), marks)
    return Picture(measure.words(f"Accuracy over rounds, {MOMENT_LABELS[moment]}"), 430, [panel])


def _percentiles(group: Group, moment: str) -> tuple[Floats, Floats]:
    """Over clients, per round; NaN where nobody was measured."""
    values = group.stacked(moment)
    sides = np.full((2, len(values)), np.nan)
    for t in np.flatnonzero(~np.isnan(values).all(axis=1)):
        sides[:, t] = np.nanpercentile(values[t], [LOW, HIGH])
    return sides[0], sides[1]


def _sentence(groups: Groups, moment: str) -> str:
    measured = [group for group in groups if not np.isnan(group.last_mean(moment))]
    if not measured:
        return "No client was measured at this moment."
    if len(measured) == 1:
        return _course(measured[0], moment)
    clusters = tasks(measured)
    told = [_ranking(cluster, moment) for cluster in clusters if len(cluster) > 1]
    if len(clusters) > 1:
        told.append("Runs that differ in data, split, model or training are not ranked against each other.")
    return " ".join(told)


def _course(group: Group, moment: str) -> str:
    curve = group.curve(moment)
    curve, shown = curve[~np.isnan(curve)], measured_as([group]).text
    low, high = (side[~np.isnan(side)][-1] for side in _percentiles(group, moment))
    return (
        f"{group.label} goes from {shown(curve[0])} to {shown(curve[-1])}; at the end "
        f"most clients lie between {shown(low)} and {shown(high)}."
    )


def _ranking(cluster: Groups, moment: str) -> str:
    ranked = sorted(cluster, key=lambda group: -group.last_mean(moment))
    first, centre, alone = ranked[0], focus(cluster), find(cluster, "separate")
    end, measure = first.last_mean(moment), measured_as(cluster)
    rounds = f"the last {first.window} rounds" if first.window > 1 else "the last round"
    text = f"{first.label} ends highest: {measure.text(end)} over {rounds}"
    if alone is not None and alone is not first:
        text += f", {measure.gain(measure.scale * (end - alone.last_mean(moment)))} against Separate"
    if centre is not first:
        place = ranked.index(centre) + 1
        text += f"; {centre.label} has {measure.text(centre.last_mean(moment))} (place {place})"
    return text + "."


CHART = Definition("accuracy", "Accuracy over rounds", 10, build)
