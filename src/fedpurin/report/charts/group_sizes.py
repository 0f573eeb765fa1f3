"""Collaborators per client over rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.collaboration import collaborator_counts, has_groups
from fedpurin.report.marks import Axis, Mark, Panel, Picture
from fedpurin.report.run_groups import Group
from fedpurin.report.series import group_line, round_axis
from fedpurin.runs.run import Floats, row_means


def build(groups: Sequence[Group]) -> Chart | Missing:
    able = [group for group in groups if any(has_groups(run) for run in group.runs)]
    if not able:
        return Missing("none of these methods forms groups of clients", listed=False)
    return Chart(lambda: View([_picture(able)], _sentence(able)))


def _counts(group: Group) -> Floats:
    """[T]: mean over the seeds."""
    table = np.full((group.rounds, len(group.runs)), np.nan)
    for column, run in enumerate(group.runs):
        table[: run.rounds, column] = collaborator_counts(run)
    return row_means(table)


def _picture(able: Sequence[Group]) -> Picture:
    marks: list[Mark] = [
        group_line(
            group, np.arange(1, group.rounds + 1), _counts(group), "round %{x}: %{y:.2f} collaborators"
        )
        for group in able
    ]
    y = Axis("collaborators per client", from_zero=True)
    panel = Panel(round_axis(max(group.rounds for group in able)), y, marks)
    return Picture("Size of the groups", 300, [panel])


def _sentence(able: Sequence[Group]) -> str:
    largest = {group.label: int(np.nanargmax(_counts(group))) + 1 for group in able}
    told = " and ".join(f"in round {t} for {name}" for name, t in largest.items())
    if len(set(largest.values())) == 1:
        told = f"in round {next(iter(largest.values()))}"
    return f"Groups are largest {told}; the threshold rises with every round, until nobody is left."


CHART = Definition("groups", "Size of the groups", 80, build)
