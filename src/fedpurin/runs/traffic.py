"""How much a client has sent and received when the federation reaches a level of accuracy.

Shapes: T finished rounds; entry t - 1 belongs to round t.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpurin.runs.run import MIB, Floats, Run

WINDOW = 3  # consecutive rounds whose mean has to reach the level: one lucky round does not count
ROUNDING = 1e-9  # (0.7 + 0.7 + 0.7) / 3 is a little below 0.7


def cumulative_mib(run: Run, moment: str = "merged") -> Floats:
    """[T]: MiB per client, both ways as sent, that had travelled when round t was measured at this moment.

    `trained` comes before the round's upload, `upload` after it, `merged` after the reply: the whole round.
    """
    sent = {way: run.ledger.per_round(way, run.ledger.total_m, run.rounds) for way in ("up", "down")}
    total = {way: np.cumsum(values) for way, values in sent.items()}
    before, now = slice(0, run.rounds), slice(1, run.rounds + 1)
    up = total["up"][before if moment == "trained" else now]
    down = total["down"][now if moment == "merged" else before]
    return (up + down) / MIB / run.clients


def running_mean(values_t: Floats, window: int = WINDOW) -> Floats:
    """[T]: mean of each round and the `window - 1` before it; NaN for the first ones and beside a NaN."""
    means_t = np.full(len(values_t), np.nan)
    for end in range(window, len(values_t) + 1):
        means_t[end - 1] = np.mean(values_t[end - window : end])
    return means_t


def fronts(points: Sequence[tuple[float, float]]) -> list[int]:
    """For (accuracy, MiB): 0 on the Pareto front, 1 on the front of the rest, and so on.

    A point is beaten by one that is no worse in both and better in one.
    """

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] >= other[0] and one[1] <= other[1]

    place = [-1] * len(points)
    level = 0
    while -1 in place:
        left = [i for i, at in enumerate(place) if at == -1]
        for i in left:
            if not any(beats(points[j], points[i]) for j in left):
                place[i] = level
        level += 1
    return place


def traffic_to(accuracy_t: Floats, mib_t: Floats, level: float, window: int = WINDOW) -> float | None:
    """MiB at the end of the first `window` consecutive rounds whose mean accuracy is at or above the level.

    None when that never happens.
    """
    reached = np.flatnonzero(running_mean(accuracy_t, window) >= level - ROUNDING)
    return float(mib_t[reached[0]]) if len(reached) else None
