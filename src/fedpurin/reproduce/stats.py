"""Paired comparison of two methods over the same clients; bootstrap over seeds first, then clients.

Shapes: T rounds, N clients.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedpurin.reproduce.result_store import Record
from fedpurin.runs.run import Floats, row_means

RESAMPLES = 10_000
LEVEL = 95
LAST = 10  # rounds over which a client's accuracy is averaged
UNSETTLED = 0.05  # points: as far as an interval's end moves with other random numbers
SEED_NAMES = {"order": "order of samples", "model": "initial model", "split": "split"}


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs in percentage points, mean over seeds and clients, with its 95 % interval."""

    mean: float
    low: float
    high: float
    clients: int
    seeds: int
    rounds: int  # the last round that both have

    @property
    def verdict(self) -> str:
        if self.low > UNSETTLED:
            return "better"
        return "worse" if self.high < -UNSETTLED else "not distinguishable"

    @property
    def verdict_here(self) -> str:
        """With its reach: clients of one seed tell nothing of another split."""
        told = self.verdict != "not distinguishable"
        return f"{self.verdict} on this split" if told and self.seeds == 1 else self.verdict

    def text(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def bootstrap(seeds: Sequence[Floats], resamples: int = RESAMPLES) -> tuple[float, float]:
    """Percentile interval of the mean over seeds of the mean over each one's clients.

    Every resample draws seeds, then clients within each. The generator is fixed: a table is the same
    whenever it is made.
    """
    rng = np.random.default_rng(20)
    drawn = rng.integers(len(seeds), size=(resamples, len(seeds)))
    means = np.zeros(resamples)
    for slot in range(len(seeds)):
        for number, values_n in enumerate(seeds):
            here = np.flatnonzero(drawn[:, slot] == number)
            means[here] += rng.choice(values_n, size=(len(here), len(values_n))).mean(axis=1)
    low, high = np.percentile(means / len(seeds), [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def difference(seeds: Sequence[Floats], rounds: int) -> Difference | None:
    """From each seed's client by client differences, in points."""
    measured = [values[~np.isnan(values)] for values in seeds]
    measured = [values for values in measured if len(values)]
    if not measured:
        return None
    low, high = bootstrap(measured)
    mean = float(np.mean([values.mean() for values in measured]))
    return Difference(mean, low, high, sum(len(values) for values in measured), len(measured), rounds)


def paired(
    ours: Sequence[Record], theirs: Sequence[Record], moment: str = "upload", last: int = LAST
) -> Difference | None:
    """Client by client and seed by seed, over the `last` rounds (at most half of them) that both have.

    None where no two records share a split: client i is then not the same client.
    """
    parts, rounds = [], 0
    for mine, other in partners(ours, theirs):
        rounds = min(mine.done, other.done)
        window = slice(rounds - min(last, max(1, rounds // 2)), rounds)
        parts.append(100 * (clients_over(mine, moment, window) - clients_over(other, moment, window)))
    return difference(parts, rounds)


def paired_best(ours: Sequence[Record], theirs: Sequence[Record], moment: str) -> Difference | None:
    """The same, each run over its own best window of ten rounds, of the rounds that both have."""
    parts, rounds = [], 0
    for mine, other in partners(ours, theirs):
        rounds = min(mine.done, other.done)
        best = [100 * clients_over(r, moment, best_window(r, moment, rounds=rounds)) for r in (mine, other)]
        parts.append(best[0] - best[1])
    return difference(parts, rounds)


def partners(ours: Sequence[Record], theirs: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Each of ours with one of theirs over the same clients, of the same seeds where there is one."""
    pairs = []
    for mine in ours:
        rivals = [other for other in theirs if other.split == mine.split]
        rivals.sort(key=lambda other: other.seeds != mine.seeds)
        pairs += [(mine, rival) for rival in rivals[:1]]
    return pairs


def clients_over(record: Record, moment: str, window: slice) -> Floats:
    """[N]: each client's mean accuracy over these rounds."""
    return row_means(record.clients(moment)[window].T)


def best_window(record: Record, moment: str, length: int = LAST, rounds: int | None = None) -> slice:
    """The `length` consecutive rounds (all, if fewer) of the first ones that are best on test data."""
    curve = record.curve(moment)[:rounds]
    length = min(length, len(curve))
    means = np.convolve(np.nan_to_num(curve), np.ones(length) / length, mode="valid")
    start = int(means.round(9).argmax())  # of windows that are equal the first, whatever the rounding
    return slice(start, start + length)


def by_setting(records: Iterable[Record]) -> list[list[Record]]:
    """The seeds of each setting together."""
    settings: dict[Hashable, list[Record]] = {}
    for record in records:
        settings.setdefault(record.setting, []).append(record)
    return list(settings.values())


def seeds_together(records: Iterable[Record]) -> list[list[Record]]:
    """The same without replicates, which would give their split twice the weight of the others."""
    return by_setting(record for record in records if not record.is_replicate)


def replicates(record: Record, records: Sequence[Record]) -> list[tuple[str, Record]]:
    """Runs of the same setting that differ in exactly one of the three seeds, and which."""
    twins = []
    for other in records:
        if other.setting != record.setting:
            continue
        apart = [name for name, seed in record.seeds.items() if other.seeds[name] != seed]
        if len(apart) == 1:
            twins.append((SEED_NAMES[apart[0]], other))
    return twins


def noise(record: Record, records: Sequence[Record]) -> list[tuple[str, Difference]]:
    """What another order of samples or another initial model changes, over the same clients."""
    gaps = [(what, paired([other], [record], "trained")) for what, other in replicates(record, records)]
    return [(what, gap) for what, gap in gaps if gap is not None]
