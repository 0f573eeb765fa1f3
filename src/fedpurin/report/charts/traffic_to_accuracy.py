"""What a level of accuracy costs: MiB per client until three consecutive rounds hold it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedpurin.report.chart import Chart, Column, Control, Definition, Missing, Row, Table, View
from fedpurin.report.charts.traffic import accuracy_line, silent_lines
from fedpurin.report.marks import Axis, Dots, Line, Mark, Panel, Picture
from fedpurin.report.run_groups import Group, Groups, focus, last_name, measured_as, task_names, tasks
from fedpurin.report.series import NO_ACCURACY, NOTHING_SENT, measure_axis, moment_control
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs.run import Floats
from fedpurin.runs.traffic import WINDOW, cumulative_mib, running_mean, traffic_to

LEVELS = {"cifar-10": (0.60, 0.65, 0.69)}  # those of the comparisons with the paper
LEVEL_COLOR = "#8a949f"
Reached = dict[str, list[list[float]]]  # group -> level -> MiB of each seed that reaches it


def build(groups: Groups) -> Chart | Missing:
    moment_choice = moment_control(groups)
    if not any(group.sends for group in groups):
        return Missing(NOTHING_SENT, listed=False)
    if not moment_choice.options:
        return Missing(NO_ACCURACY, listed=False)
    moments = moment_choice.options
    clusters = {f"t{i}": cluster for i, cluster in enumerate(tasks(groups)) if _shows(cluster, moments)}
    if not clusters:
        return Missing(f"it takes the mean of {WINDOW} rounds with traffic, and these runs have fewer")

    def view(moment: str, task: str) -> View:
        cluster = clusters[task]
        levels = choose_levels(cluster, moment)
        reached = {group.id: [traffic_of(group, moment, level) for level in levels] for group in cluster}
        picture = _picture(cluster, moment, levels)
        return View([picture], _sentence(cluster, levels, reached), _table(cluster, moment, levels, reached))

    names = dict(zip(clusters, task_names(list(clusters.values())), strict=True))
    note = (
        f"A level is reached at the end of the first {WINDOW} consecutive rounds whose mean "
        f"{measured_as(groups).name} is at or above it; the lines are these means. "
        "Traffic counts both ways, every byte as sent."
    )
    return Chart(view, [moment_choice, Control("task", "Setting", names)], note)


def _shows(cluster: Groups, moments: Iterable[str]) -> bool:
    sending = [group for group in cluster if group.sends]
    return any(len(_measured(group, moment)) for group in sending for moment in moments)


def _measured(group: Group, moment: str) -> Floats:
    means = running_mean(group.curve(moment))
    return means[~np.isnan(means)]


def choose_levels(cluster: Groups, moment: str) -> list[float]:
    """The data set's usual levels; without them, or below them, three steps up to what half of them reach."""
    curves = [curve for group in cluster if len(curve := _measured(group, moment))]
    if not curves:
        return []
    tops = [float(curve.max()) for curve in curves]
    usual = LEVELS.get(str(cluster[0].runs[0].setting("data", "dataset")), ())
    if usual and max(tops) >= min(usual):
        return list(usual)
    start, end = float(np.median([curve[0] for curve in curves])), float(np.median(tops))
    steps = {np.floor(100 * (start + part * (end - start)) + 1e-9) / 100 for part in (1 / 3, 2 / 3, 1)}
    return sorted(float(level) for level in steps)


def traffic_of(group: Group, moment: str, level: float) -> list[float]:
    """MiB of each seed that reaches the level."""
    at = group.moment(moment)
    by_seed = [traffic_to(run.mean_accuracy(at), cumulative_mib(run), level) for run in group.runs]
    return [value for value in by_seed if value is not None]


def _picture(cluster: Groups, moment: str, levels: list[float]) -> Picture:
    sending = [group for group in cluster if group.sends]
    totals = [group.traffic() for group in sending]
    left = min(float(total[min(WINDOW, len(total)) - 1]) for total in totals) / 1.3
    right = max(float(total[-1]) for total in totals) * 1.2
    measure = measured_as(cluster)
    marks: list[Mark] = [
        Line([left, right], [level, level], measure.text(level, 0), LEVEL_COLOR, width=1, in_legend=False)
        for level in levels
    ]
    for group, total in zip(sending, totals, strict=True):
        curve = running_mean(group.curve(moment))
        marks.append(accuracy_line(group, total, curve, f"MiB, mean of {WINDOW} rounds"))
        marks += _crossings(group, total, curve, levels)
    marks += silent_lines(cluster, moment, left, right)
    x = Axis("MiB per client, both ways", kind="log", range=(left, right))
    panel = Panel(x, measure_axis(cluster, f"mean accuracy, {WINDOW} rounds"), marks)
    return Picture(measure.words(f"Traffic to accuracy, {MOMENT_LABELS[moment]}"), 430, [panel])


def _crossings(group: Group, total: Floats, curve: Floats, levels: list[float]) -> list[Mark]:
    """A dot where the line reaches a level."""
    places = [np.flatnonzero(curve >= level - 1e-9) for level in levels]
    first = [int(place[0]) for place in places if len(place)]
    hover = f"%{{y:{measured_as([group]).hover}}} after %{{x:,.4~g}} MiB"
    dots = Dots(total[first], curve[first], group.label, group.color, group.marker, size=11, hover=hover)
    return [dots] if first else []


def _table(cluster: Groups, moment: str, levels: list[float], reached: Reached) -> Table:
    measure = measured_as(cluster)
    columns = [Column(f"{level:.2f}", f"MiB to {measure.text(level, 0)}") for level in levels]
    last = f"{last_name(cluster)}, {measure.name}"
    columns.append(Column("last_rounds", last, "mean over the last rounds"))
    rows = []
    for group in cluster:
        cells = [_cell(values, len(group.runs)) for values in reached[group.id]]
        mean = group.last_mean(moment)
        cells.append("" if np.isnan(mean) else measure.text(mean))
        named = {column.key: cell for column, cell in zip(columns, cells, strict=True)}
        rows.append(Row(group.method, group.label, group.color, named))
    caption = f"MiB per client, both ways, until {measure.name} {MOMENT_LABELS[moment]} reaches a level"
    return Table(caption, columns, rows)


def _cell(values: list[float], seeds: int) -> str:
    if not values:
        return "not reached"
    text = f"{np.mean(values):,.1f}" if np.mean(values) >= 1 or not any(values) else f"{np.mean(values):.3g}"
    return text if len(values) == seeds else f"{text} ({len(values)} of {seeds} seeds)"


def _sentence(cluster: Groups, levels: list[float], reached: Reached) -> str:
    """The highest level that the main method reaches, and who needs least for it."""
    sending = [group for group in cluster if group.sends]
    centre = focus(sending)
    for place in reversed(range(len(levels))):
        needs = {g.label: float(np.mean(reached[g.id][place])) for g in sending if reached[g.id][place]}
        if centre.label not in needs:
            continue
        needed = f"{needs[centre.label]:,.3g} MiB per client"
        text = f"{centre.label} holds {measured_as(cluster).text(levels[place], 0)} after {needed}"
        least = min(needs, key=lambda label: needs[label])
        if len(sending) == 1:
            return text + "."
        if least != centre.label:
            return text + f"; {least} needs least, {needs[least]:,.3g} MiB."
        only = "; no other method that sends reaches it."
        return text + (", the least of all." if len(needs) > 1 else only)
    return f"{centre.label} reaches none of these levels."


CHART = Definition("reach", "Traffic to accuracy", 35, build)
