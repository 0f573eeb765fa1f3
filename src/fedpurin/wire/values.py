"""Values as bytes: five types, and what a receiver will make of them.

`Codes` is what travels for the kept values in ascending order: one unsigned integer each, and for int8 and
sign one scale per block of 256 kept values. Blocks count kept values, not positions, so a value decodes to
the same number however the mask is coded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpurin.errors import CorruptError, NotFiniteError
from fedpurin.wire import packing
from fedpurin.wire.header import VALUE_TYPES

Floats = npt.NDArray[np.float32]
Unsigned = npt.NDArray[np.unsignedinteger]
Bytes = npt.NDArray[np.uint8]

BLOCK = 256
MAX_SCALE = np.float32(2.0**121)  # 127 times this is still finite
ITEM = {"float32": "<u4", "float16": "<u2", "bfloat16": "<u2", "int8": "<u1", "sign": "<u1"}  # 8 signs each
SCALED = ("int8", "sign")
# No finite number has these codes: all ones is a NaN in each float type, and int8 uses -127..127. A sign has
# no code to spare, so it can mark nothing as left out.
RESERVED = {"float32": 0xFFFFFFFF, "float16": 0xFFFF, "bfloat16": 0xFFFF, "int8": 0x80}
# The smallest number that rounds to infinity: half a step above the largest of the type.
OVERFLOW = {"float16": 65520.0, "bfloat16": (2 - 2.0**-8) * 2.0**127}
_TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Codes:
    items: Unsigned  # [kept]; of sign 0 and 1
    scales: Floats | None  # [ceil(kept / 256)], int8 and sign only


def check_type(value_type: str) -> None:
    if value_type not in VALUE_TYPES:
        raise ValueError(f"value type {value_type!r} is unknown; choose one of {', '.join(VALUE_TYPES)}")


def itemsize(value_type: str) -> int:
    return np.dtype(ITEM[value_type]).itemsize


def section_size(value_type: str, entries: int, kept: int) -> int:
    """Bytes of an unpacked value section; inline sections have more entries than kept values."""
    items = -(-entries // 8) if value_type == "sign" else entries * itemsize(value_type)
    return _scale_bytes(value_type, kept) + items


def marks(value_type: str) -> bool:
    """Whether an inline section is possible: the type has an item that says "no value here"."""
    return value_type in RESERVED


def _scale_bytes(value_type: str, kept: int) -> int:
    return 4 * -(-kept // BLOCK) if value_type in SCALED else 0


def to_codes(values: Floats, value_type: str) -> Codes:
    """Round float32 [kept] to the type; NaN, Inf and overflow are errors here, never on the other side."""
    if value_type == "int8":
        return _to_int8(values)
    if value_type == "sign":
        return _to_sign(values)
    largest = _largest(values)
    if not np.isfinite(largest):
        raise NotFiniteError(_not_finite(values))
    if value_type == "float32":
        return Codes(values.astype("<f4", copy=False).view("<u4"), None)
    if largest >= OVERFLOW[value_type]:
        raise NotFiniteError(_too_large(values, value_type))
    rounded = torch.from_numpy(values).to(_TORCH[value_type])
    return Codes(rounded.view(torch.int16).numpy().astype("<i2", copy=False).view("<u2"), None)


def _to_int8(values: Floats) -> Codes:
    blocks = -(-len(values) // BLOCK)
    padded = np.zeros(blocks * BLOCK, np.float32)
    padded[: len(values)] = values
    rows = padded.reshape(blocks, BLOCK)
    largest = np.abs(rows).max(axis=1) if blocks else np.zeros(0, np.float32)
    if not np.isfinite(largest).all():
        raise NotFiniteError(_not_finite(values))
    scales = largest / np.float32(127)
    if (scales > MAX_SCALE).any():
        raise NotFiniteError(_too_large(values, "int8"))
    # A block of zeros, or of numbers so small that their scale is 0, becomes zeros.
    rows /= np.where(scales > 0, scales, np.float32(1))[:, None]
    np.rint(rows, out=rows)  # to nearest, ties to even
    np.clip(rows, -127, 127, out=rows)  # a subnormal scale is coarse enough to give 128
    items = padded[: len(values)].astype(np.int8).view("<u1")
    return Codes(items, scales)


def _to_sign(values: Floats) -> Codes:
    """One bit per value, 1 for below zero; the scale of a block is the mean of its |x|."""
    blocks = -(-len(values) // BLOCK)
    padded = np.zeros(blocks * BLOCK, np.float32)
    np.abs(values, out=padded[: len(values)])
    counts = np.full(blocks, BLOCK)
    counts[-1:] = len(values) - (blocks - 1) * BLOCK
    # In float64 no sum overflows, and its order does not show in the rounded mean.
    means = padded.reshape(blocks, BLOCK).sum(axis=1, dtype=np.float64) / counts
    if not np.isfinite(means).all():
        raise NotFiniteError(_not_finite(values))
    scales = means.astype(np.float32)
    if (scales > MAX_SCALE).any():
        raise NotFiniteError(_too_large(values, "sign"))
    negative = values < 0
    if not scales.all():  # zeros, or numbers so small that their mean is 0, become zeros
        negative &= np.repeat(scales > 0, BLOCK)[: len(values)]
    return Codes(negative.view("<u1"), scales)


def from_codes(codes: Codes, value_type: str) -> Floats:
    """float32 [kept]; raises if a code or scale stands for no finite number."""
    if value_type == "int8":
        return _from_int8(codes)
    if value_type == "sign":
        return _from_sign(codes)
    if value_type == "float32":
        values = codes.items.view("<f4").astype(np.float32, copy=False)
    else:
        bits = codes.items.astype(np.uint16, copy=False).view(np.int16)
        values = torch.from_numpy(bits).view(_TORCH[value_type]).float().numpy()
    if not np.isfinite(_largest(values)):
        raise NotFiniteError(_not_finite(values))
    return values


def _largest(values: Floats) -> float:
    """max |x|, or NaN if there is one."""
    if len(values) == 0:
        return 0.0
    return float(np.maximum(values.max(), -values.min()))


def _from_int8(codes: Codes) -> Floats:
    scales = _checked_scales(codes, "int8")
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


def _from_sign(codes: Codes) -> Floats:
    scales = _checked_scales(codes, "sign")
    values = np.repeat(scales.astype(np.float32, copy=False), BLOCK)[: len(codes.items)]
    np.negative(values, out=values, where=codes.items != 0)
    if not scales.all() and (codes.items[values == 0] != 0).any():
        raise CorruptError("a sign block with scale 0 has bits that are not 0")
    return values


def _checked_scales(codes: Codes, value_type: str) -> Floats:
    assert codes.scales is not None
    if not np.isfinite(codes.scales).all():
        raise NotFiniteError(_not_finite(codes.scales))
    if (codes.scales > MAX_SCALE).any() or np.signbit(codes.scales).any():
        raise CorruptError(f"a scale of {value_type} is negative or above 2^121")
    return codes.scales


def write_section(
    codes: Codes, value_type: str, present: npt.NDArray[np.int64] | None, entries: int
) -> bytes:
    """Scales, then items; with `present`, items go to those entries and the rest get the reserved code."""
    items = codes.items if value_type != "sign" else np.packbits(codes.items, bitorder="little")
    if present is not None:
        items = np.full(entries, RESERVED[value_type], ITEM[value_type])
        items[present] = codes.items
    if codes.scales is None:
        return items.tobytes()
    return codes.scales.astype("<f4", copy=False).tobytes() + items.tobytes()


def read_section(raw: Bytes, value_type: str, entries: int, kept: int) -> Codes:
    """Codes of all entries, the reserved ones of an inline section included."""
    if len(raw) != section_size(value_type, entries, kept):
        raise CorruptError(
            f"{kept} {value_type} values take {section_size(value_type, entries, kept)} bytes, not {len(raw)}"
        )
    split = _scale_bytes(value_type, kept)
    items = raw[split:].copy().view(ITEM[value_type])  # copied because the section may start anywhere
    scales = raw[:split].copy().view("<f4") if value_type in SCALED else None
    if value_type == "sign":
        if entries % 8 and items[-1] >> (entries % 8):
            raise CorruptError("the unused bits after the last sign are not 0")
        items = np.unpackbits(items, count=entries, bitorder="little")
    return Codes(items, scales)


def planes(raw: bytes, value_type: str, kept: int) -> bytes:
    """The section as it is packed: scales as they are, items as byte planes."""
    split = _scale_bytes(value_type, kept)
    return raw[:split] + packing.to_planes(raw[split:], itemsize(value_type))


def unpack_section(frame: memoryview, value_type: str, entries: int, kept: int) -> Bytes:
    raw = packing.decompress(frame, section_size(value_type, entries, kept))
    split = _scale_bytes(value_type, kept)
    return np.concatenate((raw[:split], packing.from_planes(raw[split:], itemsize(value_type))))


def quantize(values: Tensor, value_type: str) -> Tensor:
    """What a receiver decodes when these float32 [kept] values are all that travels in one message."""
    check_type(value_type)
    array = values.detach().cpu().contiguous().numpy()
    return torch.from_numpy(from_codes(to_codes(array, value_type), value_type).copy())


def _not_finite(values: Floats) -> str:
    place = int(np.flatnonzero(~np.isfinite(values))[0])
    return f"value {place} of {len(values)} is {values[place]}; training diverged, use a lower learning rate"


def _too_large(values: Floats, value_type: str) -> str:
    worst = values[int(np.abs(values).argmax())]
    return f"{worst} is too large for {value_type}; send bfloat16 or float32, or use a lower learning rate"
