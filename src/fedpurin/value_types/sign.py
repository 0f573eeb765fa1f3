"""One bit per value, 1 for below zero, and a scale per block of 256 values: the mean of its |x|.

For changes of weights. No item can be spared, so none marks a position as left out.
"""

from __future__ import annotations

import numpy as np

from fedpurin.errors import CorruptError
from fedpurin.value_types.base import BLOCK, Codes, Floats, Scaled, Unsigned


class Sign(Scaled):
    number, bits, updates_only = 5, 1, True

    def to_codes(self, values: Floats) -> Codes:
        rows = self.blocks(np.abs(values))
        counts = np.full(len(rows), BLOCK)
        counts[-1:] = len(values) - (len(rows) - 1) * BLOCK
        # In float64 no sum overflows, and its order does not show in the rounded mean.
        scales = (rows.sum(axis=1, dtype=np.float64) / counts).astype(np.float32)
        self.check_sent(scales, values)
        negative = values < 0
        if not scales.all():  # zeros, or numbers so small that their mean is 0, become zeros
            negative &= np.repeat(scales > 0, BLOCK)[: len(values)]
        return Codes(negative.view("<u1"), scales)

    def from_codes(self, codes: Codes) -> Floats:
        scales = self.received_scales(codes)
        values = np.repeat(scales.astype(np.float32, copy=False), BLOCK)[: len(codes.items)]
        np.negative(values, out=values, where=codes.items != 0)
        if not scales.all() and (codes.items[values == 0] != 0).any():
            raise CorruptError("a sign block with scale 0 has bits that are not 0")
        return values

    def items_size(self, entries: int) -> int:
        return -(-entries // 8)

    def pack_items(self, items: Unsigned) -> Unsigned:
        return np.packbits(items, bitorder="little")

    def unpack_items(self, written: Unsigned, entries: int) -> Unsigned:
        if entries % 8 and written[-1] >> (entries % 8):
            raise CorruptError("the unused bits after the last sign are not 0")
        return np.unpackbits(written.view(np.uint8), count=entries, bitorder="little")


TYPE = Sign()
