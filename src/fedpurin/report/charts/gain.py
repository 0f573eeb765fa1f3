"""The gain of each client over the same client in Separate: who gains, who is hurt?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.marks import Axis, Dots, Line, Mark, Panel, Picture, Shade
from fedpurin.report.run_groups import Groups, focus, measured_as
from fedpurin.report.series import Gains, gains, moment_control
from fedpurin.report.style import HURT_COLOR, MOMENT_LABELS
from fedpurin.runs.run import Floats

MANY = 200  # clients that need small dots
NO_SEPARATE = "it needs a Separate run over the same clients; run the comparison with Separate to see it"


def build(groups: Groups) -> Chart | Missing:
    choice = moment_control(groups)
    moments = {moment: text for moment, text in choice.options.items() if gains(groups, moment)}
    if not moments:
        return Missing(NO_SEPARATE)

    def view(moment: str) -> View:
        rows = gains(groups, moment)
        return View([_picture(rows, moment)], _sentence(rows))

    window = max(group.window for group in groups)
    note = (
        f"Each dot is a client: its mean {measured_as(groups).name} over the last {window} measured "
        f"round{'s' if window > 1 else ''} minus that of the same client in Separate. "
        "Crosses and the shaded side: clients that do better alone. The bar is the median."
    )
    return Chart(view, [replace(choice, options=moments)], note)


def _picture(rows: list[Gains], moment: str) -> Picture:
    """A row per method, a dot per client; left of zero are those who do better alone."""
    measure = measured_as([row.group for row in rows])
    every = np.concatenate([row.gain_n for row in rows])
    lowest, highest = float(every.min()), float(every.max())
    reach = max(abs(lowest), abs(highest)) * 1.15 + 0.002 * measure.scale
    left, right = min(1.15 * lowest, -0.25 * reach), max(1.15 * highest, 0.25 * reach)
    marks: list[Mark] = [Shade(4 * left, 0, HURT_COLOR)]
    ticks: dict[float, str] = {}
    for place, row in enumerate(rows):
        ticks[place] = f"{row.group.label}\n{len(row.gain_n) - row.hurt} gain, {row.hurt} lose"
        marks += _row(row, place, reach)
    unit = "points" if measure.share else measure.name
    x = Axis(f"gain over Separate, {unit}", range=(left, right), zero_line=True)
    y = Axis(ticks=ticks, range=(-0.55, len(rows) - 0.45), reversed=True, grid=False)
    title = f"Gain of each client over Separate, {MOMENT_LABELS[moment]}"
    return Picture(title, 130 + 74 * len(rows), [Panel(x, y, marks)])


def _row(row: Gains, place: int, reach: float) -> list[Mark]:
    measure = measured_as([row.group])
    unit, digits = ("points", ".1f") if measure.share else ("", ".3f")
    many, color = len(row.gain_n) > MANY, row.group.color
    gain = f"%{{x:+{digits}}} {unit}"
    dots = Dots(
        row.gain_n,
        place + swarm(row.gain_n, reach),
        row.group.label,
        color,
        symbol="circle" if many else ["x" if lost else "circle" for lost in row.gain_n < 0],
        size=4 if many else 9,
        opacity=0.55 if many else 0.8,
        custom=np.stack([row.client_n, row.seed_n, row.alone_n, row.own_n], axis=1),
        hover=f"client %{{customdata[0]:d}}, seed %{{customdata[1]:d}}<br>"
        f"alone %{{customdata[2]:{measure.hover}}}, here %{{customdata[3]:{measure.hover}}}"
        f"<br>gain {gain}",
    )
    x, y = [float(np.median(row.gain_n))] * 2, [place - 0.42, place + 0.42]
    return [dots, Line(x, y, "median", color, width=3, in_legend=False, hover=f"median {gain}")]


def swarm(gain_n: Floats, reach: float) -> Floats:
    """Offsets that keep dots of nearly equal gain apart, the same at every drawing."""
    bins = np.round(gain_n / reach * 40).astype(int)
    offsets = np.zeros(len(gain_n))
    step = min(0.12, 0.66 / max(np.unique(bins, return_counts=True)[1].max(), 1))
    for key in np.unique(bins):
        members = np.flatnonzero(bins == key)
        offsets[members] = (np.arange(len(members)) - (len(members) - 1) / 2) * step
    return offsets


def _sentence(rows: list[Gains]) -> str:
    chosen = focus([row.group for row in rows])
    row = next(row for row in rows if row.group is chosen)
    count, worst = len(row.gain_n), int(row.gain_n.argmin())
    fine = count - row.hurt
    text = f"{chosen.label}: {fine} of {count} clients do at least as well as alone, {row.hurt} do worse"
    if row.hurt:
        loss = measured_as([chosen]).gain(row.gain_n[worst])
        text += f"; the hardest hit is client {row.client_n[worst]} ({loss})"
    same_task = [other for other in rows if other.group.task == chosen.task]
    fewest = min(same_task, key=lambda other: other.hurt)
    if fewest.hurt < row.hurt:
        text += f". Fewest are hurt by {fewest.group.label}: {fewest.hurt}"
    return text + "."


CHART = Definition("gain", "Who gains, who is hurt?", 20, build)
