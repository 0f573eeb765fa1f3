"""Slow twins of `fedpurin.core`, written with loops straight from the definition of the method.

Plain lists of Python floats (which are float64) and bools; nothing of fedpurin is used here. Overlaps and
thresholds are exact fractions, so that "at least the threshold" has one answer. Indices: i, j are clients, c
is a coordinate. Scores are float32 in the package, so limits that a score is compared with are rounded to
float32 as well.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction

Row = Sequence[float]
Bits = Sequence[bool]


def perturbation(gradient: Row, weights: Row, hessian: bool = False) -> list[float]:
    """s_j = |-g_j theta_j + 1/2 (g_j theta_j)^2|, or |g_j theta_j|, of one client."""
    scores = []
    for g, theta in zip(gradient, weights, strict=True):
        if hessian:
            scores.append(abs(-g * theta + 0.5 * (g * theta) ** 2))
        else:
            scores.append(abs(g * theta))
    return scores


def as_float32(number: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def layer_mask(scores: Row, tau: float, floor: float = 1e-10, fallback: float | None = None) -> list[bool]:
    """One parameter tensor of one client."""
    low = as_float32(floor)
    above = low if fallback is None else as_float32(fallback)
    k = int(tau * len(scores))
    if k == 0:
        return [False] * len(scores)
    th = sorted(scores, reverse=True)[k - 1]
    if th > low:
        return [s >= th for s in scores]
    if any(s > above for s in scores):
        return [s > above for s in scores]
    return [s >= th for s in scores]


def critical_mask(
    scores: Row, sizes: Sequence[int], tau: float, floor: float = 1e-10, fallback: float | None = None
) -> list[bool]:
    mask: list[bool] = []
    for size in sizes:
        layer = scores[len(mask) : len(mask) + size]
        mask.extend(layer_mask(layer, tau, floor, fallback))
    return mask


def overlap(masks: Sequence[Bits]) -> list[list[Fraction]]:
    """O_ij = 1 - ||m_i - m_j||_1 / (2 n_i); 0 where either mask is empty; 1 on the diagonal."""
    result = []
    for i, mine in enumerate(masks):
        row = []
        for j, theirs in enumerate(masks):
            if i == j:
                row.append(Fraction(1))
            elif not any(mine) or not any(theirs):
                row.append(Fraction(0))
            else:
                distance = sum(a != b for a, b in zip(mine, theirs, strict=True))
                row.append(1 - Fraction(distance, 2 * sum(mine)))
        result.append(row)
    return result


def threshold(o: Sequence[Sequence[Fraction]], t: int, beta: int) -> Fraction | float:
    """Th = O_avg + t/beta (O_max - O_avg) over ordered pairs i != j; nobody to pair with: infinite."""
    pairs = [o[i][j] for i in range(len(o)) for j in range(len(o)) if i != j]
    if not pairs:
        return float("inf")
    mean, most = sum(pairs, Fraction(0)) / len(pairs), max(pairs)
    return mean + Fraction(t, beta) * (most - mean)


def collaborators(masks: Sequence[Bits], t: int, beta: int) -> list[set[int]]:
    """C_i and i itself. A client without critical parameters joins no group; nobody does after beta."""
    o = overlap(masks)
    limit = threshold(o, t, beta)
    groups = []
    for i in range(len(masks)):
        group = {i}
        for j in range(len(masks)):
            if j != i and t <= beta and any(masks[i]) and any(masks[j]) and o[i][j] >= limit:
                group.add(j)
        groups.append(group)
    return groups


def theta_bar(
    values: Sequence[Row], masks: Sequence[Bits], weights: Row | None = None, average: str = "paper"
) -> list[float]:
    """The sample-weighted mean, zeros averaged in; with "support" over those who sent the coordinate."""
    share = [1.0] * len(values) if weights is None else list(weights)
    bar = []
    for c in range(len(values[0])):
        total = weight = 0.0
        for i in range(len(values)):
            if average == "paper" or masks[i][c]:
                total += share[i] * values[i][c]
                weight += share[i]
        bar.append(total / weight if weight else 0.0)
    return bar


def critical_mean(
    values: Sequence[Row], masks: Sequence[Bits], group: set[int], average: str = "paper"
) -> list[float]:
    """delta_i: the plain mean over a group; with "support" over those of it who sent the coordinate."""
    result = []
    for c in range(len(values[0])):
        members = [j for j in sorted(group) if average == "paper" or masks[j][c]]
        result.append(sum(values[j][c] for j in members) / len(members) if members else 0.0)
    return result


def combine(
    values: Sequence[Row],
    masks: Sequence[Bits],
    groups: Sequence[set[int]],
    weights: Row | None = None,
    average: str = "paper",
) -> list[list[float]]:
    """theta_i' = delta_i m_i + theta_bar (1 - m_i)."""
    bar = theta_bar(values, masks, weights, average)
    merged = []
    for i, mask in enumerate(masks):
        delta = critical_mean(values, masks, groups[i], average)
        merged.append([delta[c] if mask[c] else bar[c] for c in range(len(mask))])
    return merged


def largest(values: Row, sizes: Sequence[int], share: float) -> list[tuple[float, int]]:
    """Of each layer: the smallest |value| that is sent, and how many are; zeros never are."""
    limits = []
    start = 0
    for size in sizes:
        magnitudes = sorted((abs(v) for v in values[start : start + size] if v != 0), reverse=True)
        sent = magnitudes[: max(1, int(share * size))]
        limits.append((sent[-1] if sent else 0.0, len(sent)))
        start += size
    return limits


def middle_of(values: Sequence[Row], sent: Sequence[Bits]) -> list[float]:
    """The lower median of those who sent a coordinate; 0 where fewer than three did."""
    middle = []
    for c in range(len(values[0])):
        said = sorted(values[i][c] for i in range(len(values)) if sent[i][c])
        middle.append(said[(len(said) - 1) // 2] if len(said) >= 3 else 0.0)
    return middle


def bound_norms(
    values: Sequence[Row], bound: float, sent: Sequence[Bits], updates: bool = False
) -> tuple[list[list[float]], list[float]]:
    """Each upload at most bound times as far from the middle as the median of those that are not there."""
    middle = [0.0] * len(values[0]) if updates else middle_of(values, sent)
    distances = []
    for row, bits in zip(values, sent, strict=True):
        squares = [(v - m) ** 2 for v, m, b in zip(row, middle, bits, strict=True) if b]
        distances.append(sum(squares) ** 0.5)
    away = sorted(distance for distance in distances if distance > 0)
    median = away[(len(away) - 1) // 2] if away else 1.0
    bounded = []
    for row, bits, distance in zip(values, sent, distances, strict=True):
        if distance <= bound * median:
            bounded.append(list(row))
            continue
        factor = bound * median / distance
        bounded.append(
            [m + factor * (v - m) if b else 0.0 for v, m, b in zip(row, middle, bits, strict=True)]
        )
    return bounded, [distance / median for distance in distances]


def trimmed_mean(values: Sequence[Row], weights: Row, trim: Fraction, sent: Sequence[Bits]) -> list[float]:
    """Of each coordinate the mean without the int(trim n) smallest and largest, times the senders' share."""
    n = len(values)
    mean = []
    for c in range(len(values[0])):
        said = sorted((values[i][c], i) for i in range(n) if sent[i][c])
        if not said:
            mean.append(0.0)
            continue
        k = min(int(trim * n), (len(said) - 1) // 2)
        kept = said[k : len(said) - k]
        inside = sum(v * weights[i] for v, i in kept) / sum(weights[i] for _, i in kept)
        mean.append(inside * sum(weights[i] for _, i in said) / sum(weights))
    return mean
