"""Whole numbers from -127 to 127 and a scale per block of 256 values: its largest |x| / 127."""

from __future__ import annotations

import numpy as np

from fedpurin.errors import CorruptError
from fedpurin.value_types.base import (
    BLOCK,
    MAX_SCALE,
    Codes,
    Floats,
    ValueType,
    blocks_of,
    checked_scales,
    not_finite,
    too_large,
)


class Int8(ValueType):
    number, item, bits, reserved, scaled = 4, "<u1", 8, 0x80, True  # -128 is no value

    def to_codes(self, values: Floats) -> Codes:
        blocks = blocks_of(values)
        padded = np.zeros(blocks * BLOCK, np.float32)
        padded[: len(values)] = values
        rows = padded.reshape(blocks, BLOCK)
        largest = np.abs(rows).max(axis=1) if blocks else np.zeros(0, np.float32)
        if not np.isfinite(largest).all():
            raise not_finite(values)
        scales = largest / np.float32(127)
        if (scales > MAX_SCALE).any():
            raise too_large(values, "int8")
        # A block of zeros, or of numbers so small that their scale is 0, becomes zeros.
        rows /= np.where(scales > 0, scales, np.float32(1))[:, None]
        np.rint(rows, out=rows)  # to nearest, ties to even
        np.clip(rows, -127, 127, out=rows)  # a subnormal scale is coarse enough to give 128
        return Codes(padded[: len(values)].astype(np.int8).view("<u1"), scales)

    def from_codes(self, codes: Codes) -> Floats:
        scales = checked_scales(codes, "int8")
        items = codes.items.view(np.int8)
        if (items == -128).any():
            raise CorruptError("the reserved int8 code -128 stands where a value should")
        padded = np.zeros(len(scales) * BLOCK, np.float32)
        padded[: len(items)] = items
        rows = padded.reshape(len(scales), BLOCK)
        if rows[scales == 0].any():
            raise CorruptError("an int8 block with scale 0 has codes that are not 0")
        rows *= scales[:, None]
        return padded[: len(items)]


TYPE = Int8()
