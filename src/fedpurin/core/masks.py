"""Which parameters are critical: the top share tau of every layer (protocol: one tensor = one layer)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpurin.core.checks import check_matrix, check_no_nan, check_sizes


def critical_mask(
    scores: Tensor,
    sizes: Sequence[int],
    tau: float,
    *,
    floor: float = 1e-10,
    fallback: float | None = None,
) -> Tensor:
    """bool [n, d]: the k = int(tau * size) best-scored parameters of each layer, ties included.

    Where the k-th best score is not above `floor`, only scores above `fallback` (by default `floor`
    itself) are critical; a layer with no such score at all keeps `score >= k-th best`, so that an
    all-zero layer stays whole instead of being zeroed for want of a gradient. k = 0 selects nothing.
    Inf is the best score there is; NaN is refused.
    """
    check_matrix(scores, "scores")
    check_no_nan(scores, "scores")
    if not 0 <= tau <= 1:
        raise ValueError(f"tau = {tau} must lie between 0 and 1")
    sizes = check_sizes(sizes, scores.shape[1])
    above = floor if fallback is None else fallback
    if math.isnan(floor) or math.isnan(above):
        raise ValueError(f"floor = {floor} and fallback = {fallback} must be numbers")
    if scores.dtype == torch.bfloat16:  # which numpy does not know; float32 holds the same numbers
        scores = scores.float()
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    start = 0
    for size in sizes:
        layer = scores[:, start : start + size]
        k = int(tau * size)
        if k > 0:
            kth_n1 = _kth_largest(layer, k)
            chosen = layer >= kth_n1
            poor_n1 = kth_n1 <= floor
            if poor_n1.any():
                positive = layer > above
                chosen = torch.where(poor_n1 & positive.any(1, keepdim=True), positive, chosen)
            mask[:, start : start + size] = chosen
        start += size
    return mask


def _kth_largest(layer: Tensor, k: int) -> Tensor:
    """[n, 1]. By numpy, whose selection is several times faster than `kthvalue`; the value is the same."""
    at = layer.shape[1] - k
    return torch.from_numpy(np.partition(layer.detach().numpy(), at, axis=1)[:, at : at + 1].copy())


def largest(values: Tensor, sizes: Sequence[int], share: float) -> Tensor:
    """bool [n, d]: the max(1, int(share * size)) largest |values| of each layer, never a zero."""
    if values.dim() != 2 or sum(sizes) != values.shape[1]:
        raise ValueError(f"values must be [n, {sum(sizes)}], not {list(values.shape)}")
    mask = torch.zeros(values.shape, dtype=torch.bool)
    start = 0
    for size in sizes:
        if size:
            layer = values[:, start : start + size].abs()
            best = layer.topk(max(1, int(share * size)), dim=1, sorted=False).indices
            mask[:, start : start + size].scatter_(1, best, True)
        start += size
    return mask & (values != 0)
