"""The value section of a message: scales where the type has them, then an item for each entry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpurin.errors import CorruptError
from fedpurin.value_types import find_type
from fedpurin.value_types.base import BLOCK, Bytes, Codes, Floats, ValueType
from fedpurin.wire import packing


def to_codes(values: Floats, value_type: str) -> Codes:
    return find_type(value_type).to_codes(values)


def from_codes(codes: Codes, value_type: str) -> Floats:
    return find_type(value_type).from_codes(codes)


def reserved(value_type: str) -> int | None:
    """The item that says "no value here"; None: the type has none, and no set can be coded inline."""
    return find_type(value_type).reserved


def section_size(value_type: str, entries: int, kept: int) -> int:
    """Bytes of an unpacked value section; inline sections have more entries than kept values."""
    kind = find_type(value_type)
    return _scale_bytes(kind, kept) + kind.items_size(entries)


def _scale_bytes(kind: ValueType, kept: int) -> int:
    return 4 * -(-kept // BLOCK) if kind.scaled else 0


def write_section(
    codes: Codes, value_type: str, present: npt.NDArray[np.int64] | None, entries: int
) -> bytes:
    """With `present`, items go to those entries and the rest get the reserved one."""
    kind = find_type(value_type)
    if present is None:
        items = kind.pack_items(codes.items)
    else:
        assert kind.reserved is not None
        items = np.full(entries, kind.reserved, kind.item)
        items[present] = codes.items
    if codes.scales is None:
        return items.tobytes()
    return codes.scales.astype("<f4", copy=False).tobytes() + items.tobytes()


def read_section(raw: Bytes, value_type: str, entries: int, kept: int) -> Codes:
    """Codes of all entries, the reserved ones of an inline section included."""
    kind = find_type(value_type)
    if len(raw) != section_size(value_type, entries, kept):
        raise CorruptError(
            f"{kept} {value_type} values take {section_size(value_type, entries, kept)} bytes, not {len(raw)}"
        )
    split = _scale_bytes(kind, kept)
    items = raw[split:].copy().view(kind.item)  # copied because the section may start anywhere
    scales = raw[:split].copy().view("<f4") if kind.scaled else None
    return Codes(kind.unpack_items(items, entries), scales)


def planes(raw: bytes, value_type: str, kept: int) -> bytes:
    """The section as it is packed: scales as they are, items as byte planes."""
    kind = find_type(value_type)
    split = _scale_bytes(kind, kept)
    return raw[:split] + packing.to_planes(raw[split:], kind.itemsize)


def unpack_section(frame: memoryview, value_type: str, entries: int, kept: int) -> Bytes:
    kind = find_type(value_type)
    raw = packing.decompress(frame, section_size(value_type, entries, kept))
    split = _scale_bytes(kind, kept)
    return np.concatenate((raw[:split], packing.from_planes(raw[split:], kind.itemsize)))


def quantize(values: Tensor, value_type: str) -> Tensor:
    """What a receiver decodes when these float32 [kept] values are all that travels in one message."""
    array = values.detach().cpu().contiguous().numpy()
    return torch.from_numpy(from_codes(to_codes(array, value_type), value_type).copy())
