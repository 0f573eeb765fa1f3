"""Averages that a few bad clients cannot drag away: a norm bound and a trimmed mean.

Shapes: n clients, d coordinates. `sent` says who sent which coordinate (None: everybody everything). Where a
client sent nothing it has no opinion: its zero there is neither an outlier nor a vote.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.core.blocks import by_columns

FEWEST = 3  # senders of a coordinate among whom one can be called an outlier


def bound_norms(
    values: Tensor, bound: float, sent: Tensor | None = None, *, updates: bool = False
) -> tuple[Tensor, Tensor]:
    """Uploads [n, d] that lie at most `bound` times as far out as the median of them, and how far each lay.

    Distances are from the middle of the round, the median of each coordinate over those who sent it; from
    zero where fewer than three sent it, and for `updates`, which are distances already. A client further out
    than bound * median, over what it sent, is pulled straight towards the middle; the others keep their
    bits. The second result [n] is distance / median before that. Clients at the middle itself do not count
    for the median.
    """
    middle = torch.zeros(values.shape[1]) if updates else middle_of(values, sent)

    def offset(i: int) -> Tensor:
        from_middle = values[i] - middle
        return from_middle if sent is None else from_middle.masked_fill_(~sent[i], 0)

    distances = [torch.linalg.vector_norm(offset(i), dtype=torch.float64) for i in range(len(values))]
    distance_n = torch.stack(distances)
    away = distance_n[distance_n > 0]
    ratio_n = distance_n / (away.median() if len(away) else 1.0)
    far = torch.nonzero(ratio_n > bound).flatten().tolist()
    bounded = values.clone() if far else values
    for i in far:
        pulled = middle + offset(i) * float(bound / ratio_n[i])
        bounded[i] = pulled if sent is None else pulled.masked_fill_(~sent[i], 0)
    return bounded, ratio_n


def middle_of(values: Tensor, sent: Tensor | None = None) -> Tensor:
    """[d]: the median (the lower of two) over those who sent a coordinate; 0 where fewer than three did."""

    def work(lo: int, hi: int) -> Tensor:
        ordered, _, count = _sorted(values, sent, lo, hi)
        lower = ((count - 1) // 2).clamp(min=0)
        return torch.where(count < FEWEST, 0.0, ordered.gather(0, lower[None])[0])

    return by_columns(values, work)


def trimmed_mean(values: Tensor, weights: Tensor, trim: float, sent: Tensor | None = None) -> Tensor:
    """[d]: the weighted mean without the int(trim * n) smallest and largest values of each coordinate.

    All the bad clients of a round may be among the few who sent a coordinate, so as many are left out there,
    down to the median of those who sent it; where one or two did, nobody can be. The mean of the rest then
    gets the weight of all who sent it: those who did not still count as zeros, as without trimming.
    """
    n = len(values)
    most = int(trim * n + 1e-9)  # 0.15 * 20 is 3
    share_n = weights.to(torch.float32) / weights.sum()

    def work(lo: int, hi: int) -> Tensor:
        ordered, client, count = _sorted(values, sent, lo, hi)
        left_out = torch.minimum(torch.tensor(most), (count - 1).clamp(min=0) // 2)
        rank = torch.arange(n)[:, None]
        share = share_n[client]
        spoke = rank < count
        kept = spoke & (rank >= left_out) & (rank < count - left_out)
        total = torch.where(kept, share * ordered, 0.0).sum(0)
        of_kept, of_all = (torch.where(who, share, 0.0).sum(0) for who in (kept, spoke))
        return total / of_kept.clamp(min=torch.finfo(torch.float32).tiny) * of_all

    return by_columns(values, work).add_(0.0)  # -0.0 becomes +0.0


def _sorted(values: Tensor, sent: Tensor | None, lo: int, hi: int) -> tuple[Tensor, Tensor, Tensor]:
    """Columns in ascending order, those who sent nothing last; whose each value is; how many sent one."""
    block = values[:, lo:hi]
    if sent is None:
        count = torch.full((hi - lo,), len(values))
    else:
        count = sent[:, lo:hi].sum(0)
        block = block.masked_fill(~sent[:, lo:hi], torch.inf)
    ordered, client = block.sort(dim=0, stable=True)  # equal values by client
    return ordered, client, count
