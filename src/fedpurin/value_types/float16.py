"""IEEE 754 binary16: eleven significant bits, up to 65504."""

from __future__ import annotations

from fedpurin.value_types.base import HalfFloat


class Float16(HalfFloat):
    number, torch_name, overflow = 2, "float16", 65520.0


TYPE = Float16()
