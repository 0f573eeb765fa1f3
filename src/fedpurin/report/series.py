"""Numbers that several charts and the tables share, without any plotting library.

Shapes: T rounds, N clients, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.chart import Control
from fedpurin.report.marks import Axis, Line, Numbers
from fedpurin.report.run_groups import Group, comparable, last_window, measured_as, standing_in
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs.run import MIB, SECTIONS, Floats, Run
from fedpurin.runs.traffic import cumulative_mib

FEW_ROUNDS = 30  # up to so many, the points of a line are marked
NO_ACCURACY = "no accuracy was recorded (metrics were switched off)"
NOTHING_SENT = "nothing was sent in these runs: without messages there is no traffic to show"
Gain = tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]


def paper_like(run: Run) -> bool:
    """Whether the run has the paper's data and model; the paper's figures are measured on the upload."""
    data, model = run.setting("data", "dataset"), run.setting("model", "name")
    return data in ("fashion-mnist", "cifar-10", "cifar-100") and model in ("resnet8", "resnet10")


def moments_of(groups: Sequence[Group]) -> list[str]:
    """The moments that were measured, the default first: the paper's in its experiments, else `trained`."""
    runs = [run for group in groups for run in group.runs]
    order = ("upload", "merged", "trained") if all(map(paper_like, runs)) else ("trained", "upload", "merged")
    return [moment for moment in order if any(run.measured(moment) for run in runs)]


def moment_control(moments: Sequence[str], groups: Sequence[Group]) -> Control:
    label = measured_as(groups).words("Accuracy")
    return Control("moment", label, {moment: MOMENT_LABELS[moment] for moment in moments})


def group_line(group: Group, x: Numbers, y: Numbers, hover: str, custom: Numbers | None = None) -> Line:
    """A line in the look of the group's method."""
    return Line(x, y, group.label, group.color, group.dash, group.marker, hover=hover, custom=custom)


def round_axis(rounds: int, title: str = "round", *, grid: bool = True) -> Axis:
    return Axis(title, kind="count", few=rounds <= 12, grid=grid)


def method_control(groups: Sequence[Group]) -> Control:
    return Control("method", "Method", {group.id: group.label for group in groups})


@dataclass(frozen=True)
class Gains:
    """Gain of one group's clients over the same clients in Separate; of a share, in percentage points."""

    group: Group
    gain_n: Floats
    own_n: Floats  # the measure with the method
    alone_n: Floats  # and in Separate
    client_n: NDArray[np.int64]
    seed_n: NDArray[np.int64]

    @property
    def hurt(self) -> int:
        return int((self.gain_n < 0).sum())


def gains(groups: Sequence[Group], moment: str) -> list[Gains]:
    """One entry for each group that can be compared with a Separate run of the same task and clients."""
    alone = [group for group in groups if group.method == "separate"]
    rows = []
    for group in (group for group in groups if group.method != "separate"):
        others = [run for rival in alone if comparable(group, rival) for run in rival.runs]
        pairs = [(run, other) for run in group.runs for other in others if _same_clients(run, other)]
        parts = [part for run, other in pairs if (part := _gain(run, other, moment)) is not None]
        if parts:
            own, without, client, seed = (np.concatenate(column) for column in zip(*parts, strict=True))
            rows.append(
                Gains(group, measured_as([group]).scale * (own - without), own, without, client, seed)
            )
    return rows


def _same_clients(run: Run, other: Run) -> bool:
    if run.split and other.split:
        return run.split == other.split and run.clients == other.clients
    return (run.seed, run.config.get("data")) == (other.seed, other.config.get("data"))


def _gain(run: Run, other: Run, moment: str) -> Gain | None:
    own = run.client_accuracy(moment, last_window(run.rounds))
    alone = other.client_accuracy(standing_in(other, moment), last_window(other.rounds))
    ids = np.flatnonzero(~np.isnan(own) & ~np.isnan(alone))
    return (own[ids], alone[ids], ids, np.full(len(ids), run.seed)) if len(ids) else None


def group_mib(group: Group, moment: str = "merged") -> Floats:
    """[T]: mean over the seeds; seeds that stopped early are left out of later rounds."""
    table = np.full((len(group.runs), group.rounds), np.nan)
    for row, run in zip(table, group.runs, strict=True):
        row[: run.rounds] = cumulative_mib(run, moment)
    return np.asarray(np.nanmean(table, axis=0))


@dataclass(frozen=True)
class Bytes:
    """MiB per message, by round: [sections, T] in the order of SECTIONS, and the paper's rule [T]."""

    sections_st: Floats
    paper_t: Floats


def bytes_per_round(group: Group, direction: str) -> Bytes:
    """Mean over the clients that sent or received in each round, and over seeds."""
    sums = np.zeros((len(SECTIONS) + 2, group.rounds))  # the sections, the paper's rule, the messages
    for run in group.runs:
        ledger = run.ledger
        columns = [*ledger.sections_ms.T, ledger.paper_m, np.ones(len(ledger))]
        for row, values_m in zip(sums, columns, strict=True):
            row[: run.rounds] += ledger.per_round(direction, values_m, run.rounds)[1:]
    means = sums[:-1] / (np.maximum(sums[-1], 1) * MIB)
    return Bytes(means[:-1], means[-1])


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


MAX_NAME = 26


def short_names(names: list[str]) -> list[str]:
    """Layer names that fit beside a chart: without ".weight", and with only the end of very long ones."""
    cut = [name.removesuffix(".weight") for name in names]
    cut = [name if len(name) <= MAX_NAME else "…" + name[-MAX_NAME + 1 :] for name in cut]
    return cut if len(set(cut)) == len(cut) else names
