"""Masks as packed bits, eight coordinates a byte."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

BITS_PER_BYTE = 8


def pack_bits(mask: Tensor) -> Tensor:
    """bool [..., d] -> uint8 [..., ceil(d / 8)]; coordinate j is bit j % 8 (least significant first)."""
    return torch.from_numpy(np.packbits(mask.numpy(), axis=-1, bitorder="little"))


def unpack_bits(packed: Tensor, d: int) -> Tensor:
    """The inverse of `pack_bits`."""
    bits = np.unpackbits(packed.numpy(), axis=-1, count=d, bitorder="little")
    return torch.from_numpy(bits.view(np.bool_))


def choose(mask: Tensor, values: Tensor, other: Tensor | float = 0.0) -> Tensor:
    """`torch.where(mask, values, other)` on the bits of float32, which is several times faster; `other` is a
    tensor, or 0.0."""
    if values.dtype != torch.float32 or not mask.is_contiguous():
        return torch.where(mask, values, other)
    inside = mask.view(torch.uint8).to(torch.int32).neg_()  # all ones or all zeros
    bits = values.view(torch.int32)
    if not isinstance(other, Tensor):
        return inside.bitwise_and_(bits).view(torch.float32)
    other_bits = other.view(torch.int32)
    return inside.bitwise_and_(bits ^ other_bits).bitwise_xor_(other_bits).view(torch.float32)


def all_finite(values: Tensor) -> bool:
    """Neither NaN nor infinite. One pass for the extremes, which a NaN takes over; none over booleans."""
    if not values.numel():
        return True
    return all(math.isfinite(float(extreme)) for extreme in torch.aminmax(values))
