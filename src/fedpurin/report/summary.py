"""The cards and the results table, as data for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpurin.report.chart import Column, Row, Table
from fedpurin.report.measure import Measure, duration, mib
from fedpurin.report.run_groups import Group, Groups, find, focus, last_name, measured_as, rivals, tasks
from fedpurin.report.series import gains
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs.same_setting import own_name, setting_of


@dataclass(frozen=True)
class Card:
    label: str
    figure: str
    explanation: str


RANKED = ("best", "validated", "last", "last_rounds", "worst_client")
VALIDATED = (
    "the final models: each client's best after training by its own validation samples; "
    "their accuracy on the test samples"
)
LAST = "mean of the last ten rounds, or of the last third of a short run"


def cards(groups: Groups, moment: str) -> list[Card]:
    return [_setting_card(groups), *_accuracy_cards(groups, moment), _cost_card(groups)]


def _setting_card(groups: Groups) -> Card:
    runs = [run for group in groups for run in group.runs]
    seeds = len({run.seed for run in runs})
    data = sorted({_data(run.config) for run in runs})
    text = f"{_span([run.planned_rounds for run in runs])} rounds"
    text += f", {data[0] if len(data) == 1 else f'{len(data)} settings'}"
    text += f", {seeds} seeds" if seeds > 1 else ""
    return Card("Federation", f"{_span([run.clients for run in runs])} clients", text)


def _data(config: dict[str, Any]) -> str:
    counts = setting_of(config)
    name = own_name(counts.get("data.dataset", "unknown data"), "data")
    alpha = counts.get("data.alpha")
    return name if alpha is None else f"{name}, alpha {alpha}"


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _accuracy_cards(groups: Groups, moment: str) -> list[Card]:
    measure = measured_as(groups)
    measured = [group for group in groups if not np.isnan(group.last_mean(moment))]
    if not measured:
        return [Card(measure.words("Accuracy"), "not measured", "metrics were switched off")]
    centre = focus(measured)
    rounds = f"mean of the last {centre.window} rounds" if centre.window > 1 else "the last round"
    best = measure.text(_mean(centre.summary(moment, "best")))
    explanation = f"{rounds}; best {best}, picked on test data"
    if centre.validated:
        explanation += f"; {measure.text(_mean(centre.validated))} by validation"
    own = measure.text(centre.last_mean(moment))
    found = [Card(f"{centre.label}, {MOMENT_LABELS[moment]}", own, explanation)]
    top = max(rivals(centre, measured), key=lambda group: group.last_mean(moment))
    if top is not centre:
        found.append(Card("Highest", measure.text(top.last_mean(moment)), f"{top.label}, {rounds}"))
    for row in (row for row in gains(groups, moment) if row.group is centre):
        people = f"{len(row.gain_n) - row.hurt} of {len(row.gain_n)} clients gain or stay, {row.hurt} lose"
        gain = measure.gain(float(row.gain_n.mean()))
        found.append(Card(f"{centre.label} against Separate", gain, people))
    return found


def _cost_card(groups: Groups) -> Card:
    centre = focus(groups)
    both = centre.mib("up") + centre.mib("down")
    text = f"{mib(centre.mib('up'))} up, {mib(centre.mib('down'))} down"
    dense = find(rivals(centre, groups), "fedavg")
    if dense is not None and dense is not centre and (total := dense.mib("up") + dense.mib("down")):
        saved = 100 * (1 - both / total)
        text += f"; {abs(saved):.0f} % {'less' if saved >= 0 else 'more'} than FedAvg"
    return Card(f"{centre.label}, per client and round", mib(both), text)


def results(groups: Groups, moment: str) -> Table:
    measure = measured_as(groups)
    points = ", percentage points" if measure.share else ""
    columns = [
        Column("best", "Best *", "highest round mean; picked on test data"),
        Column("best_round", "in round", "the round of the best"),
        Column("validated", "By validation", measure.words(VALIDATED)),
        Column("last", "Last", "mean over clients in the last round"),
        Column("last_rounds", last_name(groups), LAST),
        Column("worst_client", "Worst client", measure.words("lowest client accuracy in the last round")),
        Column("gain", "vs. Separate", "mean gain of a client" + points),
        Column("hurt", "Hurt", "clients that do better alone"),
        Column("up", "MiB ↑", "up, per client and round, every byte"),
        Column("down", "MiB ↓", "down, per client and round, every byte"),
        Column("up_paper", "paper ↑", "up by the paper's counting rule"),
        Column("down_paper", "paper ↓", "down by the paper's counting rule"),
        Column("seconds", "Time", "wall clock of all rounds"),
    ]
    highest = {(key, _top(cluster, moment, key)) for cluster in tasks(groups) for key in RANKED}
    rows = []
    for group in groups:
        best = frozenset(key for key in RANKED if (key, group.id) in highest)
        cells = _cells(group, groups, moment)
        rows.append(Row(group.method, _label(group, groups), group.color, cells, best))
    counts = {len(group.runs) for group in groups}
    caption = measure.words(f"Accuracy {MOMENT_LABELS[moment]}") + (", in percent" if measure.share else "")
    if max(counts) > 1:
        caption += f"; mean ± standard deviation over {counts.pop() if len(counts) == 1 else 'the'} seeds"
    filled = [column for column in columns if any(row.cells.get(column.key) for row in rows)]
    return Table(caption, filled, rows)


def _label(group: Group, groups: Groups) -> str:
    label = group.label
    if not all(run.complete for run in group.runs):
        label += f" (stopped at round {min(run.rounds for run in group.runs if not run.complete)})"
    if len({len(other.runs) for other in groups}) > 1:
        label += f", {len(group.runs)} seed{'s' if len(group.runs) > 1 else ''}"
    return label


def _cells(group: Group, groups: Groups, moment: str) -> dict[str, str]:
    measure = measured_as([group])
    cells = {key: _spread(_values(group, moment, key), measure) for key in RANKED}
    rounds = group.summary(moment, "best_round")
    cells["best_round"] = str(int(rounds[0])) if len(rounds) == 1 else ""
    for gain in (row for row in gains(groups, moment) if row.group is group):
        cells["gain"] = f"{gain.gain_n.mean():+.{1 if measure.share else 3}f}".replace("-", "−")
        cells["hurt"] = f"{gain.hurt} of {len(gain.gain_n)}"
    for key in ("up", "down", "up_paper", "down_paper"):
        value = group.mib(key)
        cells[key] = f"{value:.2f}" if value >= 1 or value == 0 else f"{value:.3g}"
    cells["seconds"] = duration(_mean([run.seconds() for run in group.runs]))
    return cells


def _values(group: Group, moment: str, key: str) -> list[float]:
    if key == "validated":
        return group.validated
    return group.last_means(moment) if key == "last_rounds" else group.summary(moment, key)


def _spread(values: list[float], measure: Measure) -> str:
    """The mean, with the sample standard deviation when there are several seeds."""
    if not values:
        return ""
    text = measure.cell(_mean(values))
    return text + (f" ± {measure.cell(float(np.std(values, ddof=1)))}" if len(values) > 1 else "")


def _top(cluster: Groups, moment: str, key: str) -> str | None:
    """The group with the highest value; none where there is nothing to compare."""
    means = {group.id: _mean(values) for group in cluster if (values := _values(group, moment, key))}
    return max(means, key=lambda id: means[id]) if len(cluster) > 1 and means else None


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
