"""Numbers that several charts and the tables share, without any plotting library.

Shapes: T rounds, N clients, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.chart import Chart, Control, View
from fedpurin.report.marks import Axis, Line, Numbers
from fedpurin.report.run_groups import Group, Groups, comparable, last_window, measured_as, standing_in
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs.run import MIB, SECTIONS, Floats, Run

NO_ACCURACY = "no accuracy was recorded (metrics were switched off)"
NOTHING_SENT = "nothing was sent in these runs: without messages there is no traffic to show"
MAX_NAME = 26  # letters of a layer's name


def paper_like(run: Run) -> bool:
    """Whether the run has the paper's data and model; the paper's figures are measured on the upload."""
    data, model = run.setting("data", "dataset"), run.setting("model", "name")
    return data in ("fashion-mnist", "cifar-10", "cifar-100") and model in ("resnet8", "resnet10")


def moments_of(groups: Groups) -> list[str]:
    """The moments that were measured, the default first: the paper's in its experiments, else `trained`."""
    runs = [run for group in groups for run in group.runs]
    order = ("upload", "merged", "trained") if all(map(paper_like, runs)) else ("trained", "upload", "merged")
    return [moment for moment in order if any(run.measured(moment) for run in runs)]


def moment_control(groups: Groups) -> Control:
    """Without an option where nothing was measured."""
    label = measured_as(groups).words("Accuracy")
    return Control("moment", label, {moment: MOMENT_LABELS[moment] for moment in moments_of(groups)})


def one_at_a_time(groups: Groups, view: Callable[[Group], View], note: str) -> Chart:
    """A chart of one group, with the choice of the group above it."""
    by_id = {group.id: group for group in groups}
    names = {group.id: group.label for group in groups}
    return Chart(lambda method: view(by_id[method]), [Control("method", "Method", names)], note)


def group_line(group: Group, x: Numbers, y: Numbers, hover: str, custom: Numbers | None = None) -> Line:
    """A line in the look of the group's method."""
    return Line(x, y, group.label, group.color, group.dash, group.marker, hover=hover, custom=custom)


def round_axis(rounds: int, title: str = "round", *, grid: bool = True) -> Axis:
    return Axis(title, kind="count", few=rounds <= 12, grid=grid)


def measure_axis(groups: Groups, title: str = "mean accuracy over clients") -> Axis:
    measure = measured_as(groups)
    return Axis(measure.words(title), kind="share" if measure.share else "number")


@dataclass(frozen=True)
class Gains:
    """Gain of one group's clients over the same clients in Separate; of a share, in percentage points."""

    group: Group
    own_n: Floats  # the measure with the method
    alone_n: Floats  # and in Separate
    client_n: NDArray[np.int64]
    seed_n: NDArray[np.int64]

    @cached_property
    def gain_n(self) -> Floats:
        return measured_as([self.group]).scale * (self.own_n - self.alone_n)

    @property
    def hurt(self) -> int:
        return int((self.gain_n < 0).sum())


def gains(groups: Groups, moment: str) -> list[Gains]:
    """One entry for each group that can be compared with a Separate run of the same task and clients."""
    alone = [group for group in groups if group.method == "separate"]
    rows = []
    for group in (group for group in groups if group.method != "separate"):
        others = [run for rival in alone if comparable(group, rival) for run in rival.runs]
        pairs = [(run, other) for run in group.runs for other in others if _same_clients(run, other)]
        parts = [part for run, other in pairs if len((part := _both(run, other, moment))[0])]
        if parts:
            rows.append(Gains(group, *(np.concatenate(column) for column in zip(*parts, strict=True))))
    return rows


def _same_clients(run: Run, other: Run) -> bool:
    if run.split and other.split:
        return run.split == other.split and run.clients == other.clients
    return (run.seed, run.config.get("data")) == (other.seed, other.config.get("data"))


def _both(run: Run, other: Run, moment: str) -> tuple[NDArray[np.generic], ...]:
    """What the clients have that were measured in both: here, in the other; who they are; the seed."""
    own = run.client_accuracy(moment, last_window(run.rounds))
    alone = other.client_accuracy(standing_in(other, moment), last_window(other.rounds))
    ids = np.flatnonzero(~np.isnan(own) & ~np.isnan(alone))
    return own[ids], alone[ids], ids, np.full(len(ids), run.seed)


def bytes_per_round(group: Group, direction: str) -> tuple[Floats, Floats]:
    """MiB per message, by round: [sections, T] in the order of SECTIONS, and by the paper's rule [T].

    Mean over the clients that sent or received in each round, and over seeds.
    """
    sums = np.zeros((len(SECTIONS) + 2, group.rounds))  # the sections, the paper's rule, the messages
    for run in group.runs:
        ledger = run.ledger
        columns = [*ledger.sections_ms.T, ledger.paper_m, np.ones(len(ledger))]
        for row, values_m in zip(sums, columns, strict=True):
            row[: run.rounds] += ledger.per_round(direction, values_m, run.rounds)[1:]
    means = sums[:-1] / (np.maximum(sums[-1], 1) * MIB)
    return means[:-1], means[-1]


def mean_bytes(group: Group, direction: str) -> tuple[Floats, float]:
    """MiB per message of all rounds: [sections] and by the paper's rule."""
    sections = [run.ledger.sections_ms[run.ledger.of(direction)] for run in group.runs]
    paper = [run.ledger.paper_m[run.ledger.of(direction)] for run in group.runs]
    count = max(sum(len(part) for part in paper), 1)
    total = np.concatenate(sections).sum(axis=0)
    return total / count / MIB, float(np.concatenate(paper).sum() / count / MIB)


def client_order(run: Run) -> NDArray[np.int64]:
    """Clients by their most frequent class, the purest first; by id when classes are unknown."""
    counts = run.train_counts
    if counts.shape[1] == 0:
        return np.arange(run.clients)
    share = counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return np.lexsort((np.arange(run.clients), -share, counts.argmax(axis=1)))


def evenly_spaced(values: list[int], limit: int) -> list[int]:
    """At most `limit` of the values, evenly spaced, first and last included."""
    if len(values) <= limit:
        return values
    places = np.linspace(0, len(values) - 1, limit).round().astype(int)
    return [values[i] for i in dict.fromkeys(places.tolist())]


def short_names(names: list[str]) -> list[str]:
    """Layer names that fit beside a chart: without ".weight", and with only the end of very long ones."""
    cut = [name.removesuffix(".weight") for name in names]
    cut = [name if len(name) <= MAX_NAME else "…" + name[-MAX_NAME + 1 :] for name in cut]
    return cut if len(set(cut)) == len(cut) else names
