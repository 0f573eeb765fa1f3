"""The upper half of binary32: eight significant bits, the range of float32."""

from __future__ import annotations

from fedpurin.value_types.base import HalfFloat


class BFloat16(HalfFloat):
    number, torch_name, overflow = 3, "bfloat16", (2 - 2.0**-8) * 2.0**127


TYPE = BFloat16()
