"""What it costs: accuracy against traffic and its time, bytes by section, and the paper's counting rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.report.chart_accuracy import moment_control
from fedpurin.report.groups import Group, find, focus, focus_first
from fedpurin.report.load import SECTIONS
from fedpurin.report.series import (
    LINKS,
    best_moment,
    bytes_per_round,
    group_mib,
    mean_bytes,
    moments_of,
    seconds_for,
)
from fedpurin.report.style import SECTION_COLORS, SECTION_LABELS
from fedpurin.report.views import Chart, Control, Missing, View, duration, figure, mib, percent, safe, small

WAYS = {"up": "client to server", "down": "server to client"}
PAPER = "the paper's rule"
PAPER_MARK = {
    "symbol": "diamond-tall",
    "size": 11,
    "color": "#f0e442",
    "line": {"color": "#222", "width": 1.2},
}
STACK = ("values", "mask", "header", "meta")


def sends(group: Group) -> bool:
    return any(len(run.ledger) for run in group.runs)


def traffic_figure(groups: Sequence[Group], moment: str, link: str = "MiB") -> Any:
    """Accuracy against what travelled per client until then, or the time that takes on a link."""
    rate = LINKS[link]
    sending = [group for group in groups if sends(group)]
    totals = {group.id: group_mib(group, moment) for group in sending}
    longest = max((values[-1] for values in totals.values()), default=1.0)
    unit, scale = _time_unit(seconds_for(longest, rate)) if rate else ("MiB", 1.0)
    label = "MiB per client, both ways" if rate is None else f"{unit} of traffic per client at {link}"
    made = figure(430, label, "mean accuracy over clients")
    for group in sending:
        x = totals[group.id] if rate is None else seconds_for(totals[group.id], rate) / scale
        made.add_scatter(
            x=small(x),
            y=small(group.curve(moment)),
            name=safe(group.label),
            mode="lines+markers" if len(x) <= 30 else "lines",
            line={"color": group.color, "dash": group.dash, "width": 2.4},
            marker={"symbol": group.marker, "size": 6},
            customdata=np.arange(1, len(x) + 1, dtype=np.int32),
            hovertemplate="round %{customdata}: %{y:.1%} after %{x:,.4~g} " + unit,
        )
    for group in groups:
        if group not in sending:
            _add_level(made, group, moment)
    made.update_yaxes(tickformat=".0%")
    made.update_xaxes(rangemode="tozero")
    return made


def _add_level(made: Any, group: Group, moment: str) -> None:
    """A method that sends nothing is a level, not a curve."""
    curve = group.curve(best_moment(group.runs[0], moment))
    known = curve[~np.isnan(curve)]
    if not len(known):
        return
    level = float(known[-10:].mean())
    ends = [value for trace in made.data if trace.x is not None for value in (float(np.max(trace.x)),)]
    made.add_scatter(
        x=[0.0, max(ends, default=1.0)],
        y=[level, level],
        name=safe(group.label),
        mode="lines",
        line={"color": group.color, "dash": "dot", "width": 2},
        hovertemplate="sends nothing: %{y:.1%}",
    )


def _time_unit(seconds: float) -> tuple[str, float]:
    return ("seconds", 1.0) if seconds < 180 else ("minutes", 60.0) if seconds < 10_800 else ("hours", 3600.0)


def traffic_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Accuracy for the traffic"
    moments = moments_of(groups)
    if not any(sends(group) for group in groups):
        return Missing(title, "nothing was sent in these runs: without messages there is no traffic to show")
    if not moments:
        return Missing(title, "no accuracy was recorded (metrics were switched off)")
    links = {name: name if name == "MiB" else f"time at {name}" for name in LINKS}
    views = {
        (m, link): View([traffic_figure(groups, m, link)], traffic_sentence(groups, m, link))
        for m in moments
        for link in links
    }
    note = (
        "Traffic is every byte of every message, up and down, divided by the number of clients. "
        "Times are those bytes over one link of that speed, without latency, computing or waiting."
    )
    return Chart("traffic", title, views, [moment_control(moments), Control("link", "Against", links)], note)


def traffic_sentence(groups: Sequence[Group], moment: str, link: str) -> str:
    """The traffic each method needs for a level that all of them reach."""
    sending = [group for group in groups if sends(group)]
    reached = [np.nanmax(curve) for g in sending if not np.isnan(curve := g.curve(moment)).all()]
    if not reached:
        return "No client was measured at this moment."
    target = np.floor(100 * min(reached)) / 100
    needs = {}
    for group in sending:
        curve = group.curve(moment)
        first = np.flatnonzero(curve >= target)
        if len(first):
            needs[group.label] = group_mib(group, moment)[first[0]]
    rate = LINKS[link]
    ordered = sorted(needs.items(), key=lambda item: item[1])
    told = [
        f"{name} {mib(v) if rate is None else duration(float(seconds_for(v, rate)))}" for name, v in ordered
    ]
    if len(told) == 1:
        return f"To reach {percent(target, 0)}, a client's traffic is: {told[0]}."
    shown = told if len(told) <= 4 else [*told[:2], f"... {told[-1]}"]
    return f"Traffic per client to reach {percent(target, 0)}, which all of them reach: {', '.join(shown)}."


def cost_figure(groups: Sequence[Group]) -> Any:
    """Mean message by section, a bar per method and direction; the paper's count as a diamond."""
    sending = [group for group in groups if sends(group)]
    rows = [(group, way) for group in reversed(sending) for way in ("down", "up")]
    means = [mean_bytes(group, way) for group, way in rows]
    names = [f"{safe(group.label)} {'↑' if way == 'up' else '↓'}" for group, way in rows]
    made = figure(120 + 30 * len(rows), "MiB per client and round", "", barmode="stack", bargap=0.25)
    for section in STACK:
        values = [sections[SECTIONS.index(section)] for sections, _ in means]
        made.add_bar(
            y=names,
            x=small(values),
            orientation="h",
            name=SECTION_LABELS[section],
            marker={"color": SECTION_COLORS[section], "line": {"width": 0}},
            hovertemplate="%{y}: %{x:.4f} MiB " + SECTION_LABELS[section] + "<extra></extra>",
        )
    made.add_scatter(
        y=names,
        x=small([paper for _, paper in means]),
        mode="markers",
        name=PAPER,
        marker=PAPER_MARK,
        hovertemplate=f"%{{y}}: %{{x:.4f}} MiB by {PAPER}<extra></extra>",
    )
    for name, (sections, _) in zip(names, means, strict=True):
        total = float(sections.sum())
        made.add_annotation(x=total, y=name, text=f"{total:.3g}", showarrow=False, xanchor="left", xshift=10)
    made.update_layout(legend={"traceorder": "normal"})
    made.update_yaxes(showgrid=False)
    made.update_xaxes(range=[0, 1.14 * max(float(sections.sum()) for sections, _ in means)])
    return made


def bytes_figure(group: Group) -> Any:
    """MiB per client over rounds by section, upload above download, beside the paper's rule."""
    made = figure(520, "", "", barmode="stack", bargap=0.2 if group.rounds <= 60 else 0.0)
    _add_bytes(made, group, "up", {"xaxis": "x", "yaxis": "y"})
    _add_bytes(made, group, "down", {"xaxis": "x2", "yaxis": "y2", "showlegend": False})
    shared = {"rangemode": "tozero", "automargin": True}
    made.update_layout(
        legend={"traceorder": "normal"},
        yaxis={"domain": [0.56, 1.0], "title": {"text": "MiB up"}, **shared},
        yaxis2={"domain": [0.0, 0.44], "title": {"text": "MiB down"}, "anchor": "x2", **shared},
        xaxis={"anchor": "y", "tickformat": "d"},
        xaxis2={
            "anchor": "y2",
            "title": {"text": "round"},
            "matches": "x",
            "tickformat": "d",
            "automargin": True,
        },
    )
    return made


def _add_bytes(made: Any, group: Group, way: str, place: dict[str, Any]) -> None:
    rounds = np.arange(1, group.rounds + 1, dtype=np.int32)
    parts = bytes_per_round(group, way)
    for section in STACK:
        label = SECTION_LABELS[section]
        made.add_bar(
            x=rounds,
            y=small(parts.sections_st[SECTIONS.index(section)]),
            name=label,
            legendgroup=section,
            marker={"color": SECTION_COLORS[section], "line": {"width": 0}},
            hovertemplate=f"round %{{x}}: %{{y:.4f}} MiB {label}<extra></extra>",
            **place,
        )
    made.add_scatter(
        x=rounds,
        y=small(parts.paper_t),
        name=PAPER,
        legendgroup="paper",
        mode="lines+markers" if group.rounds <= 30 else "lines",
        line={"color": "#d55e00", "width": 2, "dash": "dot"},
        hovertemplate=f"round %{{x}}: %{{y:.4f}} MiB by {PAPER}<extra></extra>",
        **place,
    )


def cost_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "What a client sends and receives"
    if not any(sends(group) for group in groups):
        return Missing(title, "nothing was sent in these runs")
    note = (
        "Bars are the bytes that really travelled, header and mask included; the diamond is the paper's "
        "counting rule: 4 bytes per value, 1 bit per element for the mask, no packaging. "
        "↑ is up, ↓ is down. 1 MiB = 2²⁰ bytes."
    )
    return Chart("cost", title, {(): View([cost_figure(groups)], cost_sentence(groups))}, [], note)


def cost_sentence(groups: Sequence[Group]) -> str:
    sending = [group for group in groups if sends(group)]
    chosen = focus(sending)
    up, down = mib(chosen.mib("up")), mib(chosen.mib("down"))
    text = f"{chosen.label} sends {up} up and {down} down per client and round"
    dense = find(sending, "fedavg")
    if dense is not None and dense is not chosen and dense.mib("up") and dense.mib("down"):
        saved = [100 * (1 - chosen.mib(way) / dense.mib(way)) for way in ("up", "down")]
        words = [f"{abs(value):.1f} % {'less' if value >= 0 else 'more'}" for value in saved]
        text += f": {words[0]} up and {words[1]} down than FedAvg"
    return text + "."


def bytes_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Bytes per round, by section"
    sending = [group for group in groups if sends(group)]
    if not sending:
        return Missing(title, "nothing was sent in these runs")
    ordered = focus_first(sending)
    views = {(group.id,): View([bytes_figure(group)], bytes_sentence(group)) for group in ordered}
    control = Control("method", "Method", {group.id: group.label for group in ordered})
    return Chart("bytes", title, views, [control], "Mean over the clients that took part in the round.")


def bytes_sentence(group: Group) -> str:
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
