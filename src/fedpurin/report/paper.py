"""The figures drawn with matplotlib: no browser, no window, readable in a column of a paper or on a slide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpurin.errors import RunError
from fedpurin.report.chart_accuracy import _swarm as swarm
from fedpurin.report.chart_masks import SELECTION_COLORS, kept_shares
from fedpurin.report.chart_traffic import STACK, sends
from fedpurin.report.collaboration import collaborator_counts, has_groups
from fedpurin.report.groups import Group, focus
from fedpurin.report.load import SECTIONS, row_means
from fedpurin.report.paper_people import draw_classes, draw_graph, draw_overlap, image
from fedpurin.report.series import (
    HIGH,
    LINKS,
    LOW,
    SELECTION_LABELS,
    band,
    best_moment,
    bytes_per_round,
    gains,
    group_mib,
    mean_bytes,
    seconds_for,
    selection,
)
from fedpurin.report.style import HURT_COLOR, MOMENT_LABELS, SECTION_COLORS, SECTION_LABELS, method_marks

FEW_LINES = 3


def draw(groups: Sequence[Group], name: str, **choices: Any) -> Any:
    """A matplotlib Figure; call it inside `matplotlib_style()`."""
    from matplotlib.figure import Figure

    allowed = {"moment": "upload", "link": "MiB", "round": None}
    unknown = set(choices) - set(allowed)
    if unknown:
        raise RunError(
            f"a saved figure has no choice {', '.join(sorted(unknown))}; it has {', '.join(allowed)}"
        )
    chosen = {**allowed, **choices}
    if chosen["moment"] not in MOMENT_LABELS or chosen["link"] not in LINKS:
        raise RunError(f"moment is one of {', '.join(MOMENT_LABELS)}, link one of {', '.join(LINKS)}")
    made = Figure()
    _DRAWERS[name](made, groups, chosen)
    return made


def _line(axes: Any, group: Group, x: Any, y: Any) -> None:
    *_, dash, marker = method_marks(group.method)
    every = max(1, len(x) // 12)
    axes.plot(x, y, color=group.color, ls=dash, marker=marker, markevery=every, ms=4.5, label=group.label)


def _legend(axes: Any, count: int) -> None:
    """Below the axes: it never covers a line, however many there are."""
    if count > 1:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=min(count, 4), handlelength=2.6)


def _percent_axis(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def _draw_accuracy(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    axes = made.subplots()
    shaded = groups if len(groups) <= FEW_LINES else [focus(groups)]
    for group in groups:
        moment = best_moment(group.runs[0], chosen["moment"])
        rounds = np.arange(1, group.rounds + 1)
        _line(axes, group, rounds, group.curve(moment))
        if group in shaded:
            low, high = band(group, moment)
            axes.fill_between(rounds, low, high, color=group.color, alpha=0.15, lw=0)
    axes.set(xlabel="Round", ylabel="Mean accuracy over clients")
    axes.set_title(
        f"Accuracy {MOMENT_LABELS[chosen['moment']]} (band: {LOW}th to {HIGH}th percentile of clients)"
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    _percent_axis(axes.yaxis)
    _legend(axes, len(groups))


def _draw_gain(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    rows = gains(groups, chosen["moment"])
    if not rows:
        raise RunError(
            "there is no figure 'gain' of these runs: it needs a Separate run over the same clients"
        )
    made.set_size_inches(7.2, 1.5 + 0.62 * len(rows))
    axes = made.subplots()
    reach = max(float(np.abs(row.gain_n).max()) for row in rows) * 1.15 + 0.2
    left = min(min(float(row.gain_n.min()) for row in rows) * 1.15, -0.25 * reach)
    axes.axvspan(left, 0, color=HURT_COLOR, alpha=0.08, lw=0)
    axes.axvline(0, color="#888888", lw=1)
    for place, row in enumerate(reversed(rows)):
        y = place + swarm(row.gain_n, reach)
        size, lost = (9 if len(row.gain_n) > 200 else 26), row.gain_n < 0
        axes.scatter(row.gain_n[~lost], y[~lost], s=size, color=row.group.color, alpha=0.75, lw=0)
        axes.scatter(row.gain_n[lost], y[lost], s=size, color=row.group.color, marker="x", lw=1.4)
        axes.plot([np.median(row.gain_n)] * 2, [place - 0.4, place + 0.4], color=row.group.color, lw=2.5)
    labels = [
        f"{row.group.label}\n{len(row.gain_n) - row.hurt} gain, {row.hurt} lose" for row in reversed(rows)
    ]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlim=(left, reach), ylim=(-0.6, len(rows) - 0.4), xlabel="Gain over Separate, percentage points")
    axes.set_title("Who gains, who is hurt? One dot per client")
    axes.grid(visible=False, axis="y")


def _draw_traffic(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    axes = made.subplots()
    rate = LINKS[chosen["link"]]
    for group in groups:
        moment = best_moment(group.runs[0], chosen["moment"])
        curve = group.curve(moment)
        if not sends(group):
            level = curve[~np.isnan(curve)][-10:].mean()
            axes.axhline(level, color=group.color, ls=":", label=f"{group.label} (sends nothing)")
            continue
        total = group_mib(group, moment)
        _line(axes, group, total if rate is None else seconds_for(total, rate) / 60, curve)
    label = (
        "Traffic per client, MiB" if rate is None else f"Minutes of traffic per client at {chosen['link']}"
    )
    axes.set(xlabel=label, ylabel="Mean accuracy over clients", title="Accuracy for the traffic")
    _percent_axis(axes.yaxis)
    _legend(axes, len(groups))


def _draw_cost(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    rows = [(group, way) for group in groups if sends(group) for way in ("up", "down")]
    if not rows:
        raise RunError("there is no figure 'cost' of these runs: nothing was sent")
    made.set_size_inches(7.2, 1.6 + 0.3 * len(rows))
    axes = made.subplots()
    for place, (group, way) in enumerate(rows):
        sections, paper = mean_bytes(group, way)
        left = 0.0
        for name in STACK:
            width = sections[SECTIONS.index(name)]
            label = SECTION_LABELS[name] if place == 0 else None
            axes.barh(place, width, left=left, color=SECTION_COLORS[name], height=0.7, label=label)
            left += width
        label = "the paper's rule" if place == 0 else None
        axes.plot(paper, place, "d", mfc="#f0e442", mec="#222222", ms=7, label=label, ls="none")
        axes.annotate(
            f"{left:.3g}", (left, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_yticks(range(len(rows)), [f"{group.label} {'↑' if way == 'up' else '↓'}" for group, way in rows])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel="MiB per client and round", title="What a client sends (↑) and receives (↓)")
    axes.grid(visible=False, axis="y")
    made.legend(loc="outside lower center", ncols=5)


def _draw_bytes(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    able = [group for group in groups if sends(group)]
    if not able:
        raise RunError("there is no figure 'bytes' of these runs: nothing was sent")
    group = focus(able)
    panels = made.subplots(2, 1, sharex=True)
    rounds = np.arange(1, group.rounds + 1)
    for axes, way in zip(panels, ("up", "down"), strict=True):
        parts = bytes_per_round(group, way)
        floor = np.zeros(group.rounds)
        for name in STACK:
            values = parts.sections_st[SECTIONS.index(name)]
            width = 0.8 if group.rounds <= 60 else 1.0
            label = SECTION_LABELS[name] if way == "up" else None
            axes.bar(rounds, values, width, bottom=floor, color=SECTION_COLORS[name], label=label)
            floor += values
        label = "the paper's rule" if way == "up" else None
        axes.plot(rounds, parts.paper_t, color=HURT_COLOR, ls=":", marker="o", ms=3, lw=1.4, label=label)
        axes.set_ylabel(f"MiB {way}")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set_title(f"{group.label}: bytes per client and round")
    panels[1].set_xlabel("Round")
    made.legend(loc="outside lower center", ncols=5)


def _draw_groups(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    able = [group for group in groups if any(has_groups(run) for run in group.runs)]
    if not able:
        raise RunError(
            "there is no figure 'groups' of these runs: none of these methods forms groups of clients"
        )
    axes = made.subplots()
    for group in able:
        table = np.full((group.rounds, len(group.runs)), np.nan)
        for column, run in enumerate(group.runs):
            table[: run.rounds, column] = collaborator_counts(run)
        _line(axes, group, np.arange(1, group.rounds + 1), row_means(table))
    axes.set(xlabel="Round", ylabel="Collaborators per client", title="Size of the groups", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()


def _draw_coverage(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    able = [group for group in groups if any(run.kept()[0] for run in group.runs)]
    if not able:
        raise RunError("there is no figure 'coverage' of these runs: none of the methods selects parameters")
    group = focus(able)
    names, rounds, shares = kept_shares(group)
    made.set_size_inches(7.2, max(2.6, 1.5 + 0.27 * len(names)))
    axes = made.subplots()
    shown = image(
        axes, shares, extent=(rounds[0] - 0.5, rounds[-1] + 0.5, len(names) - 0.5, -0.5), low=0, high=1
    )
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set(xlabel="Round", title=f"{group.label}: share of critical parameters per layer")
    axes.xaxis.get_major_locator().set_params(integer=True)
    _percent_axis(made.colorbar(shown, ax=axes, pad=0.02).ax.yaxis)


def _draw_selection(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    able = [group for group in groups if selection(group.runs[0]) is not None]
    if not able:
        raise RunError("there is no figure 'selection' of these runs: they have no coverage.safetensors")
    names, shares = selection(focus(able).runs[0]) or ([], np.zeros((0, 6)))
    made.set_size_inches(7.2, max(2.8, 1.8 + 0.3 * len(names)))
    axes = made.subplots()
    for k, label in enumerate(SELECTION_LABELS):
        left = shares[:, :k].sum(axis=1)
        axes.barh(
            range(len(names)), shares[:, k], left=left, color=SELECTION_COLORS[k], height=0.7, label=label
        )
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="Share of the layer", title="How often parameters are critical")
    axes.grid(visible=False, axis="y")
    _percent_axis(axes.xaxis)
    made.legend(loc="outside lower center", ncols=3)


_DRAWERS: dict[str, Callable[[Any, Sequence[Group], dict[str, Any]], None]] = {
    "accuracy": _draw_accuracy,
    "gain": _draw_gain,
    "traffic": _draw_traffic,
    "cost": _draw_cost,
    "bytes": _draw_bytes,
    "classes": draw_classes,
    "overlap": draw_overlap,
    "graph": draw_graph,
    "groups": _draw_groups,
    "coverage": _draw_coverage,
    "selection": _draw_selection,
}
