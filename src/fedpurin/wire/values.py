"""Values as bytes: four types, and what a receiver will make of them.

`Codes` is what travels for the kept values in ascending order: one unsigned integer each, and for int8
one scale per block of 256 kept values. Blocks count kept values, not positions, so a value decodes to the
same number however the mask is coded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpurin.errors import CorruptError, NotFiniteError
from fedpurin.messages import Message
from fedpurin.wire import packing
from fedpurin.wire.header import VALUE_TYPES

Floats = npt.NDArray[np.float32]
Unsigned = npt.NDArray[np.unsignedinteger]
Bytes = npt.NDArray[np.uint8]

BLOCK = 256
MAX_SCALE = np.float32(2.0**121)  # 127 times this is still finite
ITEM = {"float32": "<u4", "float16": "<u2", "bfloat16": "<u2", "int8": "<u1"}
# No finite number has these codes: all ones is a NaN in each float type, and int8 uses -127..127.
RESERVED = {"float32": 0xFFFFFFFF, "float16": 0xFFFF, "bfloat16": 0xFFFF, "int8": 0x80}
# The smallest number that rounds to infinity: half a step above the largest of the type.
OVERFLOW = {"float16": 65520.0, "bfloat16": (2 - 2.0**-8) * 2.0**127}
_TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Codes:
    items: Unsigned  # [kept]
    scales: Floats | None  # [ceil(kept / 256)], int8 only


def check_type(value_type: str) -> None:
    if value_type not in VALUE_TYPES:
        raise ValueError(f"value type {value_type!r} is unknown; choose one of {', '.join(VALUE_TYPES)}")


def itemsize(value_type: str) -> int:
    return np.dtype(ITEM[value_type]).itemsize


def section_size(value_type: str, entries: int, kept: int) -> int:
    """Bytes of an unpacked value section; inline sections have more entries than kept values."""
    return _scale_bytes(value_type, kept) + entries * itemsize(value_type)


def _scale_bytes(value_type: str, kept: int) -> int:
    return 4 * -(-kept // BLOCK) if value_type == "int8" else 0


def to_codes(values: Floats, value_type: str) -> Codes:
    """Round float32 [kept] to the type; NaN, Inf and overflow are errors here, never on the other side."""
    if value_type == "int8":
        return _to_int8(values)
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


def from_codes(codes: Codes, value_type: str) -> Floats:
    """float32 [kept]; raises if a code or scale stands for no finite number."""
    if value_type == "int8":
        return _from_int8(codes)
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
    assert codes.scales is not None
    scales = codes.scales
    if not np.isfinite(scales).all():
        raise NotFiniteError(_not_finite(scales))
    if (scales > MAX_SCALE).any() or np.signbit(scales).any():
        raise CorruptError("an int8 scale is negative or above 2^121")
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


def write_section(
    codes: Codes, value_type: str, present: npt.NDArray[np.int64] | None, entries: int
) -> bytes:
    """Scales, then items; with `present`, items go to those entries and the rest get the reserved code."""
    items = codes.items
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
    scales = raw[:split].copy().view("<f4") if value_type == "int8" else None
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


def decoded_values(message: Message, value_type: str) -> Tensor:
    """float32 [n, d]: what the receivers of these rows decode, without the way through bytes."""
    check_type(value_type)
    if value_type == "float32":
        return message.values_nd
    decoded = torch.zeros_like(message.values_nd)
    for i in range(len(decoded)):
        if message.support_nd is None:
            decoded[i] = quantize(message.values_nd[i], value_type)
        else:
            positions = message.support_nd[i].nonzero().squeeze(1)
            decoded[i, positions] = quantize(message.values_nd[i, positions], value_type)
    return decoded


def _not_finite(values: Floats) -> str:
    place = int(np.flatnonzero(~np.isfinite(values))[0])
    return f"value {place} of {len(values)} is {values[place]}; training diverged, use a lower learning rate"


def _too_large(values: Floats, value_type: str) -> str:
    worst = values[int(np.abs(values).argmax())]
    return f"{worst} is too large for {value_type}; send bfloat16 or float32, or use a lower learning rate"
