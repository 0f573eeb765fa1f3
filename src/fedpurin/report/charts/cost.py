"""The mean message by section, per method and direction, beside the paper's counting rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpurin.report.chart import Chart, Definition, Missing, View
from fedpurin.report.marks import Axis, Bars, Dots, Mark, Numbers, Panel, Picture
from fedpurin.report.measure import mib
from fedpurin.report.run_groups import Groups, find, focus, rivals
from fedpurin.report.series import NOTHING_SENT, mean_bytes
from fedpurin.report.style import PAPER_COLOR, SECTION_COLORS, SECTION_LABELS
from fedpurin.runs.run import SECTIONS, Floats

PAPER = "the paper's rule"


def build(groups: Groups) -> Chart | Missing:
    sending = [group for group in groups if group.sends]
    if not sending:
        return Missing(NOTHING_SENT)
    note = (
        "Bars are the bytes that really travelled, header and mask included; the diamond is the paper's "
        "counting rule: 4 bytes per value, 1 bit per element for the mask, no packaging. "
        "↑ is up, ↓ is down; the number on the right is the whole bar. 1 MiB = 2²⁰ bytes."
    )
    return Chart(lambda: View([_picture(sending)], _sentence(sending)), note=note)


def _picture(sending: Groups) -> Picture:
    rows = [(group, way) for group in sending for way in ("up", "down")]
    sections, paper = zip(*(mean_bytes(group, way) for group, way in rows), strict=True)
    places, hover = np.arange(len(rows)), "%{y}: %{x:.4f} MiB"
    marks = section_bars(places, np.array(sections).T, hover, across=True)
    diamonds = Dots(paper, places, PAPER, PAPER_COLOR, "diamond-tall", 11, outline="#222222")
    marks.append(replace(diamonds, in_legend=True, hover=f"{hover} by {PAPER}"))
    totals = [float(parts.sum()) for parts in sections]
    names = [f"{group.label} {'↑' if way == 'up' else '↓'}" for group, way in rows]
    x = Axis("MiB per client and round", range=(0, 1.05 * max(*totals, *paper)))
    y = Axis(names=names, reversed=True, grid=False)
    panel = Panel(x, y, marks, right=[f"{total:.3g}" for total in totals])
    row = 30 if max(map(len, names)) <= 32 else 46  # a long name takes two lines
    return Picture("What a client sends (↑) and receives (↓)", 120 + row * len(rows), [panel])


def section_bars(at: Numbers, lengths_s: Floats, hover: str, *, across: bool = False) -> list[Mark]:
    """A stack: values, mask, header, metrics."""
    marks: list[Mark] = []
    for name, label in SECTION_LABELS.items():
        length, color = lengths_s[SECTIONS.index(name)], SECTION_COLORS[name]
        marks.append(Bars(at, length, label, color, across=across, hover=f"{hover} {label}"))
    return marks


def _sentence(sending: Groups) -> str:
    chosen = focus(sending)
    up, down = mib(chosen.mib("up")), mib(chosen.mib("down"))
    text = f"{chosen.label} sends {up} up and {down} down per client and round"
    dense = find(rivals(chosen, sending), "fedavg")
    if dense is not None and dense is not chosen and dense.mib("up") and dense.mib("down"):
        saved = [100 * (1 - chosen.mib(way) / dense.mib(way)) for way in ("up", "down")]
        words = [f"{abs(value):.1f} % {'less' if value >= 0 else 'more'}" for value in saved]
        text += f": {words[0]} up and {words[1]} down than FedAvg"
    return text + "."


CHART = Definition("cost", "What a client sends and receives", 40, build)
