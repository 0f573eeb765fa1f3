"""Whole numbers from -127 to 127 and a scale per block of 256 values: its largest |x| / 127."""

from __future__ import annotations

import numpy as np

from fedpurin.errors import CorruptError
from fedpurin.value_types.base import Codes, Floats, Scaled


class Int8(Scaled):
    number, bits, reserved = 4, 8, 0x80  # -128 is no value

    def to_codes(self, values: Floats) -> Codes:
        rows = self.blocks(values)
        scales = np.abs(rows).max(axis=1) / np.float32(127)
        self.check_sent(scales, values)
        # A block of zeros, or of numbers so small that their scale is 0, becomes zeros.
        rows /= np.where(scales > 0, scales, np.float32(1))[:, None]
        np.rint(rows, out=rows)  # to nearest, ties to even
        np.clip(rows, -127, 127, out=rows)  # a subnormal scale is coarse enough to give 128
        return Codes(rows.reshape(-1)[: len(values)].astype(np.int8).view("<u1"), scales)

    def from_codes(self, codes: Codes) -> Floats:
        scales = self.received_scales(codes)
        items = codes.items.view(np.int8)
        if (items == -128).any():
            raise CorruptError("the reserved int8 code -128 stands where a value should")
        rows = self.blocks(items)
        if rows[scales == 0].any():
            raise CorruptError("an int8 block with scale 0 has codes that are not 0")
        rows *= scales[:, None]
        return rows.reshape(-1)[: len(items)]


TYPE = Int8()
