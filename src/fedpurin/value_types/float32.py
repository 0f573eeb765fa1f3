"""Values as they are: IEEE 754 binary32."""

from __future__ import annotations

import numpy as np

from fedpurin.value_types.base import Codes, Floats, ValueType, checked_largest


class Float32(ValueType):
    number, item, bits, reserved = 1, "<u4", 32, 0xFFFFFFFF  # all ones is a NaN
    exact = True

    def to_codes(self, values: Floats) -> Codes:
        checked_largest(values)
        return Codes(values.astype("<f4", copy=False).view("<u4"), None)

    def from_codes(self, codes: Codes) -> Floats:
        values = codes.items.view("<f4").astype(np.float32, copy=False)
        checked_largest(values)
        return values


TYPE = Float32()
