"""Paired comparison of two methods over the same clients, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.load import row_means
from fedpurin.reproduce.store import Record

Floats = NDArray[np.float64]
RESAMPLES = 10_000
LEVEL = 95
LAST = 10  # rounds over which a client's accuracy is averaged


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs in percentage points, mean over clients, with its 95 % interval."""

    mean: float
    low: float
    high: float
    clients: int
    rounds: int  # the last round that both have

    @property
    def verdict(self) -> str:
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "not distinguishable"

    def text(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def bootstrap(values_n: Floats, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Percentile interval of the mean. The generator is fixed: a table is the same whenever it is made."""
    rng = np.random.default_rng(20)
    means = rng.choice(values_n, size=(resamples, len(values_n)), replace=True).mean(axis=1)
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def paired(
    ours: Sequence[Record],
    theirs: Sequence[Record],
    moment: str = "upload",
    last: int = LAST,
) -> Difference | None:
    """Client by client and seed by seed, over the `last` rounds (at most half of them) that both have.

    None where no two records share a split: client i is then not the same client.
    """
    parts, rounds = [], 0
    for mine in ours:
        for other in theirs:
            if mine.split != other.split:
                continue
            rounds = min(mine.done, other.done)
            window = slice(rounds - min(last, max(1, rounds // 2)), rounds)
            own_n = row_means(mine.clients(moment)[window].T)
            other_n = row_means(other.clients(moment)[window].T)
            parts.append(100 * (own_n - other_n))
            break
    if not parts:
        return None
    values = np.concatenate(parts)
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    low, high = bootstrap(values)
    return Difference(float(values.mean()), low, high, len(values), rounds)
