"""A message to bytes: the cheapest coding of each section, by exact size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedpurin.messages import Message
from fedpurin.value_types import find_type
from fedpurin.value_types.base import Bytes, Floats
from fedpurin.wire import header as h
from fedpurin.wire import masks, packing
from fedpurin.wire import values as v
from fedpurin.wire.masks import Bits, Positions


@dataclass(frozen=True)
class Reference:
    """A mask that both sides have: the client's upload mask of `round`, accepted by the server."""

    round: int
    packed: Tensor  # uint8 [ceil(d / 8)], see core.bits

    def __post_init__(self) -> None:
        if not 1 <= self.round <= h.U32_MAX:
            raise ValueError(f"a reference of round {self.round} is outside 1..{h.U32_MAX}")

    def bytes_for(self, d: int) -> Bytes:
        packed: Bytes = self.packed.detach().cpu().contiguous().numpy()
        if packed.dtype != np.uint8 or packed.shape != (masks.bytes_for(d),):
            raise ValueError(
                f"a reference mask of {d} bits is uint8 [{masks.bytes_for(d)}], not {packed.shape}"
            )
        return packed

    def proof(self, d: int) -> int:
        """A checksum: both sides must mean the same mask, not only one of the same round."""
        return zlib.crc32(self.bytes_for(d).data)


def longest(d: int, values: str = "float32") -> int:
    """No message of d parameters whose values are of this type, or of float32, has more bytes."""
    sections = max(v.section_size(kind, d, d) for kind in (values, "float32"))
    return h.LENGTH + 2 * masks.bytes_for(d) + sections


@dataclass(frozen=True)
class Encoded:
    """header + mask + values = len(data)"""

    data: bytes
    head: h.Header

    header = h.LENGTH

    @property
    def mask(self) -> int:
        """Bytes of the critical mask and of what travels outside it."""
        return self.head.critical_bytes + self.head.outside_bytes

    @property
    def values(self) -> int:
        """Bytes of the values, with the scales of int8 and sign."""
        return self.head.value_bytes

    @property
    def kept(self) -> int:
        """Number of values that travel."""
        return self.head.kept

    @property
    def mask_encoding(self) -> str:
        """Coding of the critical mask, "+" that of the support outside it."""
        return self.head.mask_encoding

    @property
    def value_type(self) -> str:
        return self.head.value_type


@dataclass(frozen=True)
class _Section:
    coding: int
    data: bytes = b""
    packed: bool = False


def encode(
    message: Message,
    address: h.Address,
    *,
    values: str = "float32",
    pack: bool = False,
    reference: Reference | None = None,
    confirmed: int = 0,
) -> Encoded:
    """The bytes of a one-row message.

    `reference` is a mask the receiver is known to have; it is used only where that saves bytes.
    """
    find_type(values)  # refuses an unknown one
    if not 0 <= confirmed <= h.U32_MAX:
        raise ValueError(f"confirmed = {confirmed} is outside 0..{h.U32_MAX}")
    parts = _Parts(message, address.d)
    critical, outside = _mask_sections(parts, values, pack, reference)
    raw = _value_section(parts, values, critical.coding, outside.coding)
    section = _pack_if_smaller(raw, v.planes(raw, values, parts.kept)) if pack else _Section(h.ALL, raw)
    used = reference if critical.coding in h.REFERRING else None
    head = h.Header(
        **vars(address),
        confirmed=confirmed,
        reference=used.round if used else 0,
        proof=used.proof(address.d) if used else 0,
        critical_coding=critical.coding,
        outside_coding=outside.coding,
        value_type=values,
        flags=_flags(parts, critical, outside, section),
        critical=parts.critical_count,
        kept=parts.kept,
        critical_bytes=len(critical.data),
        outside_bytes=len(outside.data),
        value_bytes=len(section.data),
    )
    return Encoded(h.write(head, [critical.data, outside.data, section.data]), head)


class _Parts:
    """One message row taken apart, with the index arrays that several sections need computed once."""

    def __init__(self, message: Message, d: int) -> None:
        """Check what only a programming error can get wrong: shapes, types, the all-or-nothing rule."""
        if message.values_nd.shape != (1, d) or message.values_nd.dtype != torch.float32:
            given = f"{message.values_nd.dtype} {list(message.values_nd.shape)}"
            raise ValueError(f"values must be float32 [1, {d}], not {given}")
        self.d = d
        self.values: Floats = message.values_nd.detach().cpu().numpy().reshape(d)
        self.critical = _bits(message.critical_nd, d)
        self.support = _bits(message.support_nd, d)
        self.critical_count = 0 if self.critical is None else int(np.count_nonzero(self.critical))
        self.kept = d if self.support is None else int(np.count_nonzero(self.support))
        inside = self.critical_count
        if self.critical is not None and self.support is not None:
            inside = int(np.count_nonzero(self.critical & self.support))
        if inside not in (0, self.critical_count):
            raise ValueError(
                f"{inside} of {self.critical_count} critical values travel; it must be all of them or none"
            )
        self.travels = inside > 0  # the critical values do
        self.outside_count = d - self.critical_count
        self.kept_outside = self.kept - inside
        self.only_critical_travels = self.travels and self.kept_outside == 0  # kept set = critical set
        # of an inline value section: one for every position but those known to be left out
        self.inline_entries = d if self.travels else self.outside_count

    @cached_property
    def kept_positions(self) -> Positions:
        return np.arange(self.d) if self.support is None else np.flatnonzero(self.support)

    @cached_property
    def kept_values(self) -> Floats:
        return self.values if self.kept == self.d else self.values.take(self.kept_positions)

    @cached_property
    def support_outside(self) -> Bits:
        """The support restricted to the positions outside the critical set, in order."""
        assert self.support is not None  # where all values travel nobody asks
        if self.critical is None or self.critical_count == 0:
            return self.support
        return self.support.take(np.flatnonzero(~self.critical))


def _bits(mask: Tensor | None, d: int) -> Bits | None:
    """bool [1, d] tensor -> bool [d] array."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape != (1, d):
        raise ValueError(f"a mask for {d} parameters must be a bool tensor [1, {d}]")
    return mask.detach().cpu().numpy().reshape(d)


def _mask_sections(
    parts: _Parts, value_type: str, pack: bool, reference: Reference | None
) -> tuple[_Section, _Section]:
    """Code the critical mask and the support outside it, or mark one of them inside the values."""
    critical = _code_critical(parts, pack, reference)
    outside = _code_outside(parts, pack)
    if find_type(value_type).reserved is None:
        return critical, outside
    candidate = critical if parts.only_critical_travels else outside
    explicit = len(candidate.data) + v.section_size(value_type, parts.kept, parts.kept)
    if v.section_size(value_type, parts.inline_entries, parts.kept) >= explicit:
        return critical, outside
    inline = _Section(h.INLINE)
    return (inline, outside) if parts.only_critical_travels else (critical, inline)


def _code_critical(parts: _Parts, pack: bool, reference: Reference | None) -> _Section:
    if parts.critical is None:
        return _Section(h.ABSENT)
    if parts.critical_count in (0, parts.d):
        return _Section(h.ALL if parts.critical_count else h.EMPTY)
    difference = None if reference is None else masks.pack(parts.critical) ^ reference.bytes_for(parts.d)
    if difference is not None and not difference.any():
        return _Section(h.ECHO)
    positions = parts.kept_positions if parts.only_critical_travels else None
    best = _code_bits(parts.critical, parts.critical_count, pack, positions)
    if difference is None:
        return best
    return min([best, *_deltas(difference, parts.d, pack, len(best.data))], key=lambda made: len(made.data))


def _deltas(difference: Bytes, d: int, pack: bool, below: int) -> list[_Section]:
    """Ways to send where the mask differs from the reference, if any is shorter than `below` bytes."""
    sections = []
    if pack:
        frame = packing.compress(difference.tobytes())
        sections.append(_Section(h.DELTA_BITMAP, frame, packed=True))
    changed = masks.unpack(difference, d)
    gaps = masks.write_rice(changed, int(np.count_nonzero(changed)), below)
    if gaps is not None:
        sections.append(_Section(h.DELTA, gaps))
    return [section for section in sections if len(section.data) < below]


def _code_outside(parts: _Parts, pack: bool) -> _Section:
    if parts.kept_outside in (0, parts.outside_count):
        return _Section(h.ALL if parts.kept_outside else h.EMPTY)
    return _code_bits(parts.support_outside, parts.kept_outside, pack)


def _code_bits(bits: Bits, ones: int, pack: bool, positions: Positions | None = None) -> _Section:
    """Bitmap, or the gaps between the rarer of ones and zeros; the first of the smallest."""
    best = _Section(h.BITMAP, masks.pack(bits).tobytes())
    if pack:
        best = _pack_if_smaller(best.data, best.data, h.BITMAP)
    if 2 * ones <= len(bits):
        coding, gaps = h.GAPS, masks.write_rice(bits, ones, len(best.data), positions)
    else:
        coding, gaps = h.HOLES, masks.write_rice(~bits, len(bits) - ones, len(best.data))
    return best if gaps is None else _Section(coding, gaps)


def _value_section(parts: _Parts, value_type: str, critical_coding: int, outside_coding: int) -> bytes:
    codes = find_type(value_type).to_codes(parts.kept_values)
    if h.INLINE not in (critical_coding, outside_coding):
        return v.write_section(codes, value_type, None, parts.kept)
    entries = parts.inline_entries
    present = parts.kept_positions if entries == parts.d else np.flatnonzero(parts.support_outside)
    return v.write_section(codes, value_type, present, entries)


def _pack_if_smaller(raw: bytes, prepared: bytes, coding: int = h.ALL) -> _Section:
    frame = packing.compress(prepared)
    return _Section(coding, frame, packed=True) if len(frame) < len(raw) else _Section(coding, raw)


def _flags(parts: _Parts, critical: _Section, outside: _Section, value_section: _Section) -> int:
    return (
        h.PACKED_CRITICAL * critical.packed
        | h.PACKED_OUTSIDE * outside.packed
        | h.PACKED_VALUES * value_section.packed
        | h.CRITICAL_TRAVELS * parts.travels
    )
