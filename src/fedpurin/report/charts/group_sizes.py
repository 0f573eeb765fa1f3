"""Collaborators per client over rounds."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.charts.who_works_with_whom import collaborator_counts, has_groups
from fedpurin.report.marks import Axis, Mark, Panel, Picture
from fedpurin.report.run_groups import Group, Groups
from fedpurin.report.series import group_line, round_axis
from fedpurin.runs.run import Floats


def build(groups: Groups) -> Chart | Missing:
    able = [group for group in groups if any(has_groups(run) for run in group.runs)]
    if not able:
        return Missing("none of these methods forms groups of clients", listed=False)
    return Chart(lambda: View([_picture(able)], _sentence(able)))


def _counts(group: Group) -> Floats:
    return group.over_seeds(collaborator_counts(run) for run in group.runs)


def _picture(able: Groups) -> Picture:
    marks: list[Mark] = []
    for group in able:
        rounds = np.arange(1, group.rounds + 1)
        marks.append(group_line(group, rounds, _counts(group), "round %{x}: %{y:.2f} collaborators"))
    y = Axis("collaborators per client", from_zero=True)
    panel = Panel(round_axis(max(group.rounds for group in able)), y, marks)
    return Picture("Size of the groups", 300, [panel])


def _sentence(able: Groups) -> str:
    largest = {group.label: int(np.nanargmax(_counts(group))) + 1 for group in able}
    told = " and ".join(f"in round {t} for {name}" for name, t in largest.items())
    if len(set(largest.values())) == 1:
        told = f"in round {next(iter(largest.values()))}"
    return f"Groups are largest {told}; the threshold rises with every round, until nobody is left."


CHART = Definition("groups", "Size of the groups", 80, build)
