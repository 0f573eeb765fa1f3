"""The value section of a message: scales where the type has them, then an item for each entry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpurin.errors import CorruptError
from fedpurin.value_types import find_type
from fedpurin.value_types.base import BLOCK, Codes, ValueType
from fedpurin.wire import packing


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


def read_section(section: memoryview, value_type: str, entries: int, kept: int, packed: bool) -> Codes:
    """Codes of all entries, the reserved ones of an inline section included."""
    kind = find_type(value_type)
    size, split = section_size(value_type, entries, kept), _scale_bytes(kind, kept)
    raw = packing.decompress(section, size) if packed else np.frombuffer(section, np.uint8)
    if len(raw) != size:
        raise CorruptError(f"{kept} {value_type} values take {size} bytes, not {len(raw)}")
    items = raw[split:].reshape(kind.itemsize, -1).T if packed else raw[split:]
    written = items.copy().reshape(-1).view(kind.item)  # copied because the section may start anywhere
    scales = raw[:split].copy().view("<f4") if kind.scaled else None
    return Codes(kind.unpack_items(written, entries), scales)


def planes(raw: bytes, value_type: str, kept: int) -> bytes:
    """The section as it is packed: scales as they are, items as byte planes.

    First bytes of all items, then second bytes, ...: exponents end up together.
    """
    kind = find_type(value_type)
    split = _scale_bytes(kind, kept)
    items = np.frombuffer(raw, np.uint8, offset=split).reshape(-1, kind.itemsize)
    return raw[:split] + items.T.tobytes()


def quantize(values: Tensor, value_type: str) -> Tensor:
    """What a receiver decodes when these float32 [kept] values are all that travels in one message."""
    kind = find_type(value_type)
    codes = kind.to_codes(values.detach().cpu().contiguous().numpy())
    return torch.from_numpy(kind.from_codes(codes).copy())
