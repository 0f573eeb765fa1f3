"""Summary cards and the results table, as HTML. Every figure comes from the runs' summaries."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fedpurin.report.chart_accuracy import last_mean
from fedpurin.report.groups import Group, find, focus
from fedpurin.report.series import best_moment, gains
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.report.views import duration, mib, percent, points

Card = tuple[str, str, str]  # label, figure, explanation


def cards_html(groups: Sequence[Group], moments: Sequence[str]) -> str:
    return _per_moment(moments, lambda moment: f'<div class="cards">{_cards(groups, moment)}</div>')


def table_html(groups: Sequence[Group], moments: Sequence[str]) -> str:
    return _per_moment(moments, lambda moment: _table(groups, moment))


def _per_moment(moments: Sequence[str], make: Any) -> str:
    """All moments are in the page; the first is shown until another is chosen."""
    blocks = []
    for place, moment in enumerate(moments or ["upload"]):
        hidden = "" if place == 0 else " hidden"
        blocks.append(f'<div data-moment="{moment}"{hidden}>{make(moment)}</div>')
    return "\n".join(blocks)


def _cards(groups: Sequence[Group], moment: str) -> str:
    found = [_setting_card(groups), *_accuracy_cards(groups, moment), *_cost_cards(groups)]
    return "".join(
        f'<div class="card"><span>{escape(label)}</span><strong>{escape(value)}</strong>'
        f"<small>{escape(text)}</small></div>"
        for label, value, text in found
    )


def _setting_card(groups: Sequence[Group]) -> Card:
    runs = [run for group in groups for run in group.runs]
    clients = _span([run.clients for run in runs])
    rounds = _span([run.planned_rounds for run in runs])
    seeds = len({run.seed for run in runs})
    data = sorted({_data(run.config.get("data", {})) for run in runs})
    text = data[0] if len(data) == 1 else f"{len(data)} settings"
    return (
        "Federation",
        f"{clients} clients",
        f"{rounds} rounds, {text}" + (f", {seeds} seeds" if seeds > 1 else ""),
    )


def _data(section: dict[str, Any]) -> str:
    name = str(section.get("dataset", "unknown data"))
    alpha = section.get("alpha")
    dirichlet = str(section.get("partition", "dirichlet")).startswith("dirichlet")
    return name + (f", alpha {alpha}" if alpha is not None and dirichlet else "")


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _accuracy_cards(groups: Sequence[Group], moment: str) -> list[Card]:
    known = [group for group in groups if not np.isnan(last_mean(group, moment))]
    if not known:
        return [("Accuracy", "not measured", "metrics were switched off")]
    centre = focus(known)
    best = _mean(centre.summary(best_moment(centre.runs[0], moment), "best"))
    label = f"{centre.label}, {MOMENT_LABELS[moment]}"
    text = f"mean of the last rounds; best {percent(best)}, picked on test data"
    cards = [(label, percent(last_mean(centre, moment)), text)]
    top = max(known, key=lambda group: last_mean(group, moment))
    if top is not centre:
        cards.append(("Highest", percent(last_mean(top, moment)), f"{top.label}, mean of the last rounds"))
    row = next((row for row in gains(groups, moment) if row.group is centre), None)
    if row is not None:
        people = f"{len(row.gain_n) - row.hurt} of {len(row.gain_n)} clients gain or stay, {row.hurt} lose"
        cards.append((f"{centre.label} against Separate", points(float(row.gain_n.mean())), people))
    return cards


def _cost_cards(groups: Sequence[Group]) -> list[Card]:
    centre = focus(groups)
    both = centre.mib("up") + centre.mib("down")
    text = f"{mib(centre.mib('up'))} up, {mib(centre.mib('down'))} down"
    dense = find(groups, "fedavg")
    if dense is not None and dense is not centre and (total := dense.mib("up") + dense.mib("down")):
        saved = 100 * (1 - both / total)
        text += f"; {abs(saved):.0f} % {'less' if saved >= 0 else 'more'} than FedAvg"
    return [(f"{centre.label}, per client and round", mib(both), text)]


COLUMNS = {
    "method": ("Method", ""),
    "best": ("Best *", "highest round mean; picked on test data"),
    "best_round": ("in round", "the round of the best"),
    "last": ("Last", "mean over clients in the last round"),
    "mean_of_last_10": ("Last 10", "mean of the last ten rounds"),
    "worst_client": ("Worst client", "lowest client accuracy in the last round"),
    "gain": ("vs. Separate", "mean gain of a client, percentage points"),
    "hurt": ("Hurt", "clients that do better alone"),
    "up": ("MiB ↑", "up, per client and round, every byte"),
    "down": ("MiB ↓", "down, per client and round, every byte"),
    "up_paper": ("paper ↑", "up by the paper's counting rule"),
    "down_paper": ("paper ↓", "down by the paper's counting rule"),
    "seconds": ("Time", "wall clock of all rounds"),
}


def _table(groups: Sequence[Group], moment: str) -> str:
    rows = [_row(group, groups, moment) for group in groups]
    if len({len(group.runs) for group in groups}) > 1:
        for group, row in zip(groups, rows, strict=True):
            row["method"] += f", {len(group.runs)} seed{'s' if len(group.runs) > 1 else ''}"
    shown = [key for key in COLUMNS if any(row.get(key) for row in rows)]
    best = {key: _top(groups, moment, key) for key in ("best", "last", "mean_of_last_10", "worst_client")}
    head = "".join(
        f'<th scope="col" title="{escape(COLUMNS[key][1])}">{escape(COLUMNS[key][0])}</th>' for key in shown
    )
    body = []
    for group, row in zip(groups, rows, strict=True):
        cells = [f'<th scope="row"><i style="background:{group.color}"></i>{escape(row["method"])}</th>']
        for key in shown[1:]:
            mark = ' class="top"' if best.get(key) is group and len(groups) > 1 else ""
            cells.append(f'<td data-key="{key}"{mark}>{escape(row.get(key) or "–")}</td>')
        body.append(f'<tr data-method="{escape(group.method)}">{"".join(cells)}</tr>')
    caption = f"Accuracy {MOMENT_LABELS[moment]}, in percent"
    counts = {len(group.runs) for group in groups}
    if max(counts) > 1:
        number = f"{max(counts)}" if len(counts) == 1 else "the"
        caption += f"; mean ± standard deviation over {number} seeds"
    table = f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>"
    table += f"<tbody>{''.join(body)}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Results">{table}</div>'


def _row(group: Group, groups: Sequence[Group], moment: str) -> dict[str, str]:
    measured = best_moment(group.runs[0], moment)
    row = {"method": group.label + _state(group)}
    for key in ("best", "last", "mean_of_last_10", "worst_client"):
        row[key] = _percent_spread(group.summary(measured, key))
    rounds = group.summary(measured, "best_round")
    row["best_round"] = str(int(rounds[0])) if len(rounds) == 1 else ""
    found = next((entry for entry in gains(groups, moment) if entry.group is group), None)
    if found is not None:
        row["gain"] = f"{found.gain_n.mean():+.1f}".replace("-", "−")
        row["hurt"] = f"{found.hurt} of {len(found.gain_n)}"
    row |= {key: _mib(group.mib(key)) for key in ("up", "down", "up_paper", "down_paper")}
    row["seconds"] = duration(_mean([float(run.summary.get("seconds") or 0.0) for run in group.runs]))
    return row


def _mib(value: float) -> str:
    return f"{value:.2f}" if value >= 1 or value == 0 else f"{value:.3g}"


def _state(group: Group) -> str:
    if all(run.complete for run in group.runs):
        return ""
    return f" (stopped at round {min(run.rounds for run in group.runs if not run.complete)})"


def _percent_spread(values: list[float]) -> str:
    """Percent, with the sample standard deviation when there are several seeds."""
    if not values:
        return ""
    text = f"{100 * _mean(values):.2f}"
    return text + (f" ± {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _top(groups: Sequence[Group], moment: str, key: str) -> Group | None:
    known = [g for g in groups if g.summary(best_moment(g.runs[0], moment), key)]
    if not known:
        return None
    return max(known, key=lambda g: _mean(g.summary(best_moment(g.runs[0], moment), key)))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
