"""MiB per client over rounds by section, upload above download, beside the paper's rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.charts.cost import PAPER
from fedpurin.report.marks import Axis, Bars, Line, Mark, Panel, Picture
from fedpurin.report.run_groups import Group, focus_first
from fedpurin.report.series import NOTHING_SENT, bytes_per_round, mean_bytes, method_control, round_axis
from fedpurin.report.style import HURT_COLOR, SECTION_COLORS, SECTION_LABELS
from fedpurin.report.units import mib
from fedpurin.runs.run import SECTIONS

WAYS = {"up": "client to server", "down": "server to client"}


def build(groups: Sequence[Group]) -> Chart | Missing:
    sending = {group.id: group for group in focus_first(groups) if group.sends}
    if not sending:
        return Missing(NOTHING_SENT)

    def view(method: str) -> View:
        return View([_picture(sending[method])], _sentence(sending[method]))

    controls = [method_control(list(sending.values()))]
    return Chart(view, controls, "Mean over the clients that took part in the round.")


def _picture(group: Group) -> Picture:
    panels = [_panel(group, "up", ""), _panel(group, "down", "round")]
    return Picture(f"{group.label}: bytes per client and round", 520, panels)


def _panel(group: Group, way: str, x_title: str) -> Panel:
    rounds, parts = np.arange(1, group.rounds + 1), bytes_per_round(group, way)
    marks: list[Mark] = []
    for name, label in SECTION_LABELS.items():
        lengths, hover = parts.sections_st[SECTIONS.index(name)], f"round %{{x}}: %{{y:.4f}} MiB {label}"
        marks.append(Bars(rounds, lengths, label, SECTION_COLORS[name], hover=hover))
    hover = f"round %{{x}}: %{{y:.4f}} MiB by {PAPER}"
    marks.append(Line(rounds, parts.paper_t, PAPER, HURT_COLOR, "dot", "circle", width=2, hover=hover))
    return Panel(round_axis(group.rounds, x_title), Axis(f"MiB {way}", from_zero=True), marks)


def _sentence(group: Group) -> str:
    told = []
    for way, words in WAYS.items():
        totals = bytes_per_round(group, way).sections_st.sum(axis=0)
        sent = totals[totals > 0]
        if len(sent):
            told.append(f"{words} {mib(sent[0])} in the first and {mib(sent[-1])} in the last round")
    sections, paper = mean_bytes(group, "up")
    over = 100 * (sections.sum() / paper - 1) if paper else 0.0
    word = "larger" if over >= 0 else "smaller"
    return f"{group.label}: {'; '.join(told)}. Uploads are {abs(over):.2f} % {word} than the paper counts."


CHART = Definition("bytes", "Bytes per round, by section", 50, build)
