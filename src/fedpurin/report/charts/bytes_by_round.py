"""MiB per client over rounds by section, upload above download, beside the paper's rule."""

from __future__ import annotations

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.charts.cost import PAPER, section_bars
from fedpurin.report.marks import Axis, Line, Panel, Picture
from fedpurin.report.measure import mib
from fedpurin.report.run_groups import Group, Groups, focus_first
from fedpurin.report.series import NOTHING_SENT, bytes_per_round, mean_bytes, one_at_a_time, round_axis
from fedpurin.report.style import HURT_COLOR

WAYS = {"up": "client to server", "down": "server to client"}


def build(groups: Groups) -> Chart | Missing:
    sending = [group for group in focus_first(groups) if group.sends]
    if not sending:
        return Missing(NOTHING_SENT)
    return one_at_a_time(sending, _view, "Mean over the clients that took part in the round.")


def _view(group: Group) -> View:
    panels = [_panel(group, "up", ""), _panel(group, "down", "round")]
    return View([Picture(f"{group.label}: bytes per client and round", 520, panels)], _sentence(group))


def _panel(group: Group, way: str, x_title: str) -> Panel:
    rounds = np.arange(1, group.rounds + 1)
    sections, paper = bytes_per_round(group, way)
    hover = "round %{x}: %{y:.4f} MiB"
    marks = section_bars(rounds, sections, hover)
    line = Line(rounds, paper, PAPER, HURT_COLOR, "dot", "circle", width=2, hover=f"{hover} by {PAPER}")
    marks.append(line)
    return Panel(round_axis(group.rounds, x_title), Axis(f"MiB {way}", from_zero=True), marks)


def _sentence(group: Group) -> str:
    told = []
    for way, words in WAYS.items():
        totals = bytes_per_round(group, way)[0].sum(axis=0)
        sent = totals[totals > 0]
        if len(sent):
            told.append(f"{words} {mib(sent[0])} in the first and {mib(sent[-1])} in the last round")
    sections, paper = mean_bytes(group, "up")
    over = 100 * (sections.sum() / paper - 1) if paper else 0.0
    word = "larger" if over >= 0 else "smaller"
    return f"{group.label}: {'; '.join(told)}. Uploads are {abs(over):.2f} % {word} than the paper counts."


CHART = Definition("bytes", "Bytes per round, by section", 50, build)
