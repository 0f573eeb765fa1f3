"""The numbers behind the figures, without any plotting library. Both plotly and matplotlib draw from these.

Shapes: T rounds, N clients, K classes, B nodes of the collaboration graph, R rounds shown on a slider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.groups import Group, same_split
from fedpurin.report.load import MIB, MOMENTS, SECTIONS, Floats, Run

LOW, HIGH = 10, 90  # the band of the accuracy chart: percentiles over clients
LINKS = {"MiB": None, "1 Mbit/s": 1e6, "10 Mbit/s": 1e7, "100 Mbit/s": 1e8}  # bits per second


def moments_of(groups: Sequence[Group]) -> list[str]:
    """The moments at which at least one run was measured, the paper's own (upload) first."""
    order = ("upload", "merged", "trained")
    return [m for m in order if any(run.measured(m) for g in groups for run in g.runs)]


def best_moment(run: Run, moment: str) -> str:
    """The moment itself; for a run without exchange, where nothing is merged, the trained model."""
    if run.measured(moment):
        return moment
    return next((m for m in MOMENTS if run.measured(m)), moment)


def band(group: Group, moment: str) -> tuple[Floats, Floats]:
    """The 10th and 90th percentile over clients, per round; NaN where nobody was measured."""
    values = group.stacked(moment)
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for t in np.flatnonzero(~np.isnan(values).all(axis=1)):
        low[t], high[t] = np.nanpercentile(values[t], [LOW, HIGH])
    return low, high


@dataclass(frozen=True)
class Gains:
    """Gain of one group's clients over the same clients in Separate, in percentage points."""

    group: Group
    gain_n: Floats
    own_n: Floats  # accuracy with the method
    alone_n: Floats  # accuracy in Separate
    client_n: NDArray[np.int64]
    seed_n: NDArray[np.int64]

    @property
    def hurt(self) -> int:
        return int((self.gain_n < 0).sum())


def gains(groups: Sequence[Group], moment: str) -> list[Gains]:
    """One entry for each group that can be compared with a Separate run over the same clients."""
    found = []
    rivals = [group for group in groups if group.method == "separate"]
    for group in groups:
        if group.method == "separate":
            continue
        parts = [
            part for run in group.runs for rival in rivals if (part := _gain(run, rival, moment)) is not None
        ]
        if parts:
            own, alone, client, seed = (np.concatenate(column) for column in zip(*parts, strict=True))
            found.append(Gains(group, 100 * (own - alone), own, alone, client, seed))
    return found


def _gain(run: Run, rival: Group, moment: str) -> tuple[Any, ...] | None:
    other = same_split(run, rival)
    if other is None:
        return None
    own = run.client_accuracy(moment)
    alone = other.client_accuracy(best_moment(other, moment))
    known = ~np.isnan(own) & ~np.isnan(alone)
    if not known.any():
        return None
    ids = np.flatnonzero(known)
    return own[known], alone[known], ids, np.full(len(ids), run.seed)


def cumulative_mib(run: Run, moment: str) -> Floats:
    """[T]: MiB per client that had travelled when round t was measured at this moment.

    `trained` comes before the round's upload, `upload` after it, `merged` after the reply as well.
    """
    sent = {way: run.ledger.per_round(way, run.ledger.total_m, run.rounds) for way in ("up", "down")}
    total = {way: np.cumsum(values) for way, values in sent.items()}
    before, now = slice(0, run.rounds), slice(1, run.rounds + 1)
    up = total["up"][before if moment == "trained" else now]
    down = total["down"][now if moment == "merged" else before]
    return (up + down) / MIB / run.clients


def group_mib(group: Group, moment: str) -> Floats:
    """[T]: mean over the seeds; seeds that stopped early are left out of later rounds."""
    table = np.full((len(group.runs), group.rounds), np.nan)
    for row, run in zip(table, group.runs, strict=True):
        row[: run.rounds] = cumulative_mib(run, moment)
    return np.nanmean(table, axis=0)


def seconds_for(mib: Floats, bits_per_second: float) -> Floats:
    return mib * MIB * 8 / bits_per_second


@dataclass(frozen=True)
class Bytes:
    """MiB per message, by round: [sections, T] in the order of SECTIONS, and the paper's rule [T]."""

    sections_st: Floats
    paper_t: Floats


def bytes_per_round(group: Group, direction: str) -> Bytes:
    """Mean over the clients that sent or received in each round, and over seeds."""
    sums, paper, count = (
        np.zeros((len(SECTIONS), group.rounds)),
        np.zeros(group.rounds),
        np.zeros(group.rounds),
    )
    for run in group.runs:
        for s in range(len(SECTIONS)):
            by_round = run.ledger.per_round(direction, run.ledger.sections_ms[:, s], run.rounds)
            sums[s, : run.rounds] += by_round[1:]
        paper[: run.rounds] += run.ledger.per_round(direction, run.ledger.paper_m, run.rounds)[1:]
        ones = np.ones(len(run.ledger))
        count[: run.rounds] += run.ledger.per_round(direction, ones, run.rounds)[1:]
    scale = np.maximum(count, 1) * MIB
    return Bytes(sums / scale, paper / scale)


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


def selection(run: Run) -> tuple[list[str], Floats] | None:
    """Per exchanged layer, the shares of parameters critical in 0, up to 1/4, 1/2, 3/4, <1 and all rounds."""
    stored = run.coverage()
    layers = [layer for layer in run.layers if layer.get("exchanged")]
    if stored is None or "client_counts" not in stored or not layers:
        return None
    counts_cd, rounds = stored["client_counts"], int(stored["rounds"][0])
    if rounds < 1 or counts_cd.shape[1] != sum(layer["size"] for layer in layers):
        return None
    quarters = 1 + (4 * counts_cd.astype(np.int64) - 1) // rounds
    kinds = np.where(counts_cd == 0, 0, np.where(counts_cd >= rounds, 5, quarters))
    shares, start = [], 0
    for layer in layers:
        part = kinds[:, start : start + layer["size"]]
        shares.append(np.bincount(part.ravel(), minlength=6) / part.size)
        start += layer["size"]
    return [layer["name"] for layer in layers], np.array(shares)


SELECTION_LABELS = ("never", "≤ 1/4", "≤ 1/2", "≤ 3/4", "< all", "always")
