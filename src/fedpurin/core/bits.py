"""Masks as packed bits, eight coordinates a byte."""

from __future__ import annotations

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


def check_boolean(given: Tensor, what: str) -> None:
    """Scores or 0.5 in the place of a mask would count as True without a word."""
    if given.dtype != torch.bool:
        raise ValueError(
            f"{what} must be bool, not {given.dtype}; from scores: critical_mask(...), else .bool()"
        )
