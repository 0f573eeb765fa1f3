"""What `fedpurin.core` asks of the tensors that people hand it. What would count as something else without a
word, or spread as NaN, is a ValueError that names it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

from fedpurin.core.bits import all_finite


def check_matrix(given: Any, what: str) -> None:
    if not isinstance(given, Tensor):
        raise ValueError(f"{what} must be a torch tensor [n, d], not a {type(given).__name__}")
    if given.dim() != 2:
        raise ValueError(f"{what} must be [n, d], not {list(given.shape)}")


def check_boolean(given: Tensor, what: str) -> None:
    """Scores or 0.5 in the place of a mask would count as True without a word."""
    if given.dtype != torch.bool:
        raise ValueError(
            f"{what} must be bool, not {given.dtype}; from scores: critical_mask(...), else .bool()"
        )


def check_floats(given: Any, what: str) -> None:
    """Means of whole numbers would be cut off."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        found = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{what} must be a tensor of floating point numbers, not {found}; use .float()")


def check_no_nan(given: Tensor, what: str) -> None:
    if has_nan(given):
        raise ValueError(
            f"{what} hold NaN, which is neither more nor less than a number; leave that client out"
        )


def has_nan(given: Tensor) -> bool:
    """One pass: a maximum is NaN where any element is."""
    return given.is_floating_point() and given.numel() > 0 and math.isnan(float(given.detach().max()))


def check_sizes(sizes: Sequence[int], d: int) -> list[int]:
    """Elements per layer, in order."""
    try:
        numbers = [index(size) for size in sizes]
    except TypeError:
        raise ValueError(f"sizes must be whole numbers, one per layer, not {sizes!r:.80}") from None
    if min(numbers, default=0) < 0:
        raise ValueError(f"layer sizes must not be negative, as {min(numbers)} is")
    if sum(numbers) != d:
        raise ValueError(f"layer sizes add up to {sum(numbers)}, but there are {d} scores")
    return numbers


def check_overlap(overlap: Any, t: int, beta: int) -> None:
    if not isinstance(overlap, Tensor) or overlap.dim() != 2 or overlap.shape[0] != overlap.shape[1]:
        found = list(overlap.shape) if isinstance(overlap, Tensor) else type(overlap).__name__
        raise ValueError(f"overlap must be a tensor [n, n], not {found}")
    if not all_finite(overlap):
        raise ValueError("overlap holds NaN or Inf; it comes from overlap(masks)")
    if not beta >= 1:
        raise ValueError(f"beta = {beta} must be at least 1")
    if not t >= 0:
        raise ValueError(f"t = {t} must be at least 0")


def check_groups(groups: Any, n: int) -> None:
    if not isinstance(groups, Tensor) or groups.shape != (n, n):
        found = list(groups.shape) if isinstance(groups, Tensor) else type(groups).__name__
        raise ValueError(f"groups must be a tensor [n, n] with n = {n}, not {found}")
    check_boolean(groups, "groups")
    empty = torch.nonzero(~groups.any(dim=1)).flatten().tolist()
    if empty:
        raise ValueError(
            f"groups: row {empty[0]} is empty, and nobody has no mean; a row holds the client itself, too, "
            "as with collaborators(...), or groups | torch.eye(n, dtype=torch.bool)"
        )


def check_weights(weights: Any, n: int) -> None:
    """As they are used: in float32."""
    if not isinstance(weights, Tensor) or weights.shape != (n,):
        found = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"weights must be a tensor of {n} numbers, not {found}")
    shares_n = weights.to(torch.float32)
    if not (all_finite(shares_n) and (shares_n >= 0).all() and 0 < float(shares_n.sum()) < math.inf):
        raise ValueError(
            f"weights must be {n} numbers from 0 up with a positive sum in float32, not "
            f"{weights.tolist()!s:.80}"
        )
