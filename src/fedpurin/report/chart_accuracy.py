"""Accuracy over rounds, and the gain of each client over Separate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.report.groups import Group, find, focus
from fedpurin.report.load import LAST_ROUNDS
from fedpurin.report.series import HIGH, LOW, Gains, band, best_moment, gains, moments_of
from fedpurin.report.style import HURT_COLOR, MOMENT_LABELS, fade
from fedpurin.report.views import Chart, Control, Missing, View, figure, percent, points, safe, small

FEW_LINES = 3  # so many bands can be told apart
BANDS = {"focus": "of one method", "all": "of all", "none": "hide"}


def accuracy_figure(groups: Sequence[Group], moment: str, bands: str = "focus") -> Any:
    """Mean accuracy of each group over rounds; bands: none, focus or all."""
    made = figure(430, "round", "mean accuracy over clients", hoverdistance=30)
    shown = {"none": [], "focus": [focus(groups)], "all": list(groups)}[bands]
    for group in shown:
        _add_band(made, group, moment)
    for group in groups:
        values = group.curve(_moment(group, moment))
        mode = "lines+markers" if len(values) <= 30 else "lines"
        made.add_scatter(
            x=np.arange(1, len(values) + 1, dtype=np.int32),
            y=small(values),
            name=safe(group.label),
            legendgroup=group.id,
            mode=mode,
            line={"color": group.color, "dash": group.dash, "width": 2.4},
            marker={"symbol": group.marker, "size": 6},
            hovertemplate="round %{x}: %{y:.1%}",
        )
    made.update_yaxes(tickformat=".0%")
    made.update_xaxes(tickformat="d", rangemode="normal")
    if groups and max(group.rounds for group in groups) <= 12:
        made.update_xaxes(dtick=1)
    return made


def _moment(group: Group, moment: str) -> str:
    return best_moment(group.runs[0], moment)


def _add_band(made: Any, group: Group, moment: str) -> None:
    low, high = band(group, _moment(group, moment))
    known = ~np.isnan(low)
    rounds = np.arange(1, len(low) + 1, dtype=np.int32)[known]
    made.add_scatter(
        x=np.concatenate([rounds, rounds[::-1]]),
        y=small(np.concatenate([high[known], low[known][::-1]])),
        name=safe(f"{group.label}, spread"),
        legendgroup=group.id,
        showlegend=False,
        mode="lines",
        fill="toself",
        fillcolor=fade(group.color, 0.16),
        line={"width": 0, "color": group.color},
        hoverinfo="skip",
    )


def accuracy_chart(groups: Sequence[Group]) -> Chart | Missing:
    moments = moments_of(groups)
    if not moments:
        return Missing("Accuracy over rounds", "no accuracy was recorded (metrics were switched off)")
    bands = dict(BANDS)
    if len(groups) <= FEW_LINES:
        bands = {"all": "show", "none": "hide"}
    else:
        bands["focus"] = f"of {focus(groups).label}"
    views = {
        (moment, choice): View([accuracy_figure(groups, moment, choice)], accuracy_sentence(groups, moment))
        for moment in moments
        for choice in bands
    }
    note = f"The band spans the {LOW}th to the {HIGH}th percentile of clients"
    note += ", all seeds together." if any(len(group.runs) > 1 for group in groups) else "."
    controls = [moment_control(moments), Control("band", "Spread over clients", bands)]
    return Chart(
        "accuracy", "Accuracy over rounds", views, controls, note + " Click a name to hide its line."
    )


def moment_control(moments: list[str]) -> Control:
    return Control("moment", "Accuracy", {moment: MOMENT_LABELS[moment] for moment in moments})


def last_mean(group: Group, moment: str) -> float:
    """Mean of the last rounds, averaged over seeds; NaN when never measured."""
    values = group.summary(_moment(group, moment), "mean_of_last_10")
    return float(np.mean(values)) if values else float("nan")


def accuracy_sentence(groups: Sequence[Group], moment: str) -> str:
    known = [group for group in groups if not np.isnan(last_mean(group, moment))]
    if not known:
        return "No client was measured at this moment."
    window = min(LAST_ROUNDS, max(group.rounds for group in known))
    if len(known) == 1:
        group = known[0]
        curve = group.curve(_moment(group, moment))
        curve = curve[~np.isnan(curve)]
        low, high = (side[~np.isnan(side)][-1] for side in band(group, _moment(group, moment)))
        return (
            f"{group.label} goes from {percent(curve[0])} to {percent(curve[-1])}; at the end "
            f"most clients lie between {percent(low)} and {percent(high)}."
        )
    ranked = sorted(known, key=lambda group: -last_mean(group, moment))
    first = ranked[0]
    text = f"{first.label} ends highest: {percent(last_mean(first, moment))} over the last {window} rounds"
    alone = find(known, "separate")
    if alone is not None and alone is not first:
        text += f", {points(100 * (last_mean(first, moment) - last_mean(alone, moment)))} against Separate"
    centre = focus(known)
    if centre is not first:
        text += (
            f"; {centre.label} has {percent(last_mean(centre, moment))} (place {ranked.index(centre) + 1})"
        )
    return text + "."


def gain_figure(groups: Sequence[Group], moment: str) -> Any:
    """A row per method, a dot per client; left of zero are those who do better alone."""
    rows = gains(groups, moment)
    made = figure(130 + 74 * len(rows), "gain over Separate, points", "", showlegend=False)
    reach = max((float(np.abs(row.gain_n).max()) for row in rows), default=1.0) * 1.15 + 0.2
    left = min((float(row.gain_n.min()) for row in rows), default=0.0)
    right = max((float(row.gain_n.max()) for row in rows), default=0.0)
    made.add_shape(
        type="rect", x0=-4 * reach, x1=0, y0=0, y1=1, yref="paper", layer="below",
        fillcolor=fade(HURT_COLOR, 0.07), line={"width": 0},
    )  # fmt: skip
    for place, row in enumerate(reversed(rows)):
        _add_gain_row(made, row, place, reach)
    made.update_xaxes(
        range=[min(left * 1.15, -0.25 * reach), max(right * 1.15, 0.25 * reach)],
        zeroline=True,
        zerolinewidth=2,
        ticksuffix="",
    )
    made.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[_gain_label(row) for row in reversed(rows)],
        range=[-0.55, len(rows) - 0.45],
        showgrid=False,
        zeroline=False,
    )
    return made


def _gain_label(row: Gains) -> str:
    return f"<b>{safe(row.group.label)}</b><br>{len(row.gain_n) - row.hurt} gain, {row.hurt} lose"


def _add_gain_row(made: Any, row: Gains, place: int, reach: float) -> None:
    many = len(row.gain_n) > 200
    made.add_scatter(
        x=small(row.gain_n),
        y=small(place + _swarm(row.gain_n, reach)),
        mode="markers",
        name=safe(row.group.label),
        marker={
            "color": row.group.color,
            "symbol": ["x" if lost else "circle" for lost in row.gain_n < 0] if not many else "circle",
            "size": 4 if many else 9,
            "opacity": 0.55 if many else 0.8,
        },
        customdata=small(np.stack([row.client_n, row.seed_n, 100 * row.alone_n, 100 * row.own_n], axis=1)),
        hovertemplate="client %{customdata[0]:d}, seed %{customdata[1]:d}<br>alone %{customdata[2]:.1f} %, "
        "here %{customdata[3]:.1f} %<br>gain %{x:+.1f} points",
    )
    middle = float(np.median(row.gain_n))
    made.add_scatter(
        x=[middle, middle],
        y=[place - 0.42, place + 0.42],
        mode="lines",
        name="median",
        line={"color": row.group.color, "width": 3},
        hovertemplate="median %{x:+.1f} points",
    )


def _swarm(gain_n: np.ndarray, reach: float) -> np.ndarray:
    """Offsets that keep dots of nearly equal gain apart, the same at every drawing."""
    bins = np.round(gain_n / reach * 40).astype(int)
    offsets = np.zeros(len(gain_n))
    step = min(0.12, 0.66 / max(np.unique(bins, return_counts=True)[1].max(), 1))
    for key in np.unique(bins):
        members = np.flatnonzero(bins == key)
        offsets[members] = (np.arange(len(members)) - (len(members) - 1) / 2) * step
    return offsets


def gain_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Who gains, who is hurt?"
    moments = [moment for moment in moments_of(groups) if gains(groups, moment)]
    if not moments:
        reason = "it needs a Separate run over the same clients; run the comparison with Separate to see it"
        return Missing(title, reason)
    views = {(m,): View([gain_figure(groups, m)], gain_sentence(groups, m)) for m in moments}
    note = (
        f"Each dot is a client: its mean accuracy over the last {LAST_ROUNDS} measured rounds minus that of "
        "the same client in Separate. Crosses and the shaded side: clients that do better alone. "
        "The bar is the median."
    )
    return Chart("gain", title, views, [moment_control(moments)], note)


def gain_sentence(groups: Sequence[Group], moment: str) -> str:
    rows = {row.group.id: row for row in gains(groups, moment)}
    chosen = focus([row.group for row in rows.values()])
    row = rows[chosen.id]
    count = len(row.gain_n)
    worst = int(row.gain_n.argmin())
    fine = count - row.hurt
    text = f"{chosen.label}: {fine} of {count} clients do at least as well as alone, {row.hurt} do worse"
    if row.hurt:
        text += f"; the hardest hit is client {row.client_n[worst]} ({points(row.gain_n[worst])})"
    fewest = min(rows.values(), key=lambda other: other.hurt)
    if fewest.hurt < row.hurt:
        text += f". Fewest are hurt by {fewest.group.label}: {fewest.hurt}"
    return text + "."
