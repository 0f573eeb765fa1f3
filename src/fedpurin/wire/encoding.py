"""A message to bytes: the cheapest coding of each section, by exact size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedpurin.messages import Message
from fedpurin.value_types import find_type
from fedpurin.wire import header as h
from fedpurin.wire import masks, packing
from fedpurin.wire import values as v
from fedpurin.wire.masks import Bits, Bytes, Positions
from fedpurin.wire.parts import Parts


@dataclass(frozen=True)
class Reference:
    """A mask that both sides have: the client's upload mask of `round`, accepted by the server."""

    round: int
    packed: Tensor  # uint8 [ceil(d / 8)], see core.bits

    def __post_init__(self) -> None:
        if not 1 <= self.round <= h.U32_MAX:
            raise ValueError(f"a reference of round {self.round} is outside 1..{h.U32_MAX}")

    def bytes_for(self, d: int) -> npt.NDArray[np.uint8]:
        packed: npt.NDArray[np.uint8] = self.packed.detach().cpu().contiguous().numpy()
        if packed.dtype != np.uint8 or packed.shape != (masks.bytes_for(d),):
            raise ValueError(
                f"a reference mask of {d} bits is uint8 [{masks.bytes_for(d)}], not {packed.shape}"
            )
        return packed

    def proof(self, d: int) -> int:
        """A checksum: both sides must mean the same mask, not only one of the same round."""
        return zlib.crc32(self.bytes_for(d).data)


@dataclass(frozen=True)
class Encoded:
    data: bytes
    header: int  # header + mask + values = len(data)
    mask: int  # critical mask and what travels outside it
    values: int  # with the scales of int8 and sign
    kept: int  # number of values that travel
    mask_encoding: str  # coding of the critical mask, "+" that of the support outside it
    value_type: str


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
    parts = Parts(message, address.d)
    critical, outside = _mask_sections(parts, values, pack, reference)
    raw = _value_section(parts, values, critical.coding, outside.coding)
    section = _pack_if_smaller(raw, v.planes(raw, values, parts.kept)) if pack else _Section(h.ALL, raw)
    used = reference if critical.coding in h.REFERRING else None
    head = h.Header(
        fingerprint=address.fingerprint,
        d=address.d,
        round=address.round,
        client=address.client,
        direction=address.direction,
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
    return Encoded(
        data=h.with_checksum(h.write(head), [critical.data, outside.data, section.data]),
        header=h.LENGTH,
        mask=len(critical.data) + len(outside.data),
        values=len(section.data),
        kept=parts.kept,
        mask_encoding=head.mask_encoding,
        value_type=values,
    )


def _mask_sections(
    parts: Parts, value_type: str, pack: bool, reference: Reference | None
) -> tuple[_Section, _Section]:
    """Code the critical mask and the support outside it, or mark one of them inside the values."""
    critical = _code_critical(parts, pack, reference)
    outside = _code_outside(parts, pack)
    if v.reserved(value_type) is None:
        return critical, outside
    candidate = critical if parts.only_critical_travels else outside
    entries = _inline_entries(parts)
    explicit = len(candidate.data) + v.section_size(value_type, parts.kept, parts.kept)
    if v.section_size(value_type, entries, parts.kept) >= explicit:
        return critical, outside
    inline = _Section(h.INLINE)
    return (inline, outside) if parts.only_critical_travels else (critical, inline)


def _inline_entries(parts: Parts) -> int:
    """An inline value section has an entry for every position but those known to be left out."""
    return parts.d if parts.travels else parts.outside_count


def _code_critical(parts: Parts, pack: bool, reference: Reference | None) -> _Section:
    if parts.critical is None:
        return _Section(h.ABSENT)
    if parts.critical_count in (0, parts.d):
        return _Section(h.ALL if parts.critical_count else h.EMPTY)
    positions = parts.kept_positions if parts.only_critical_travels else None
    if reference is None:
        return _code_bits(parts.critical, parts.critical_count, pack, positions)
    base = reference.bytes_for(parts.d)
    difference = masks.pack(parts.critical) ^ base
    if not difference.any():
        return _Section(h.ECHO)
    best = _code_bits(parts.critical, parts.critical_count, pack, positions)
    deltas = _deltas(difference, parts.d, pack, len(best.data))
    return min([best, *deltas], key=lambda section: len(section.data))


def _deltas(difference: Bytes, d: int, pack: bool, below: int) -> list[_Section]:
    """Ways to send where the mask differs from the reference, if any is shorter than `below` bytes."""
    sections = []
    if pack:
        frame = packing.compress(difference.tobytes())
        sections.append(_Section(h.DELTA_BITMAP, frame, packed=True))
    changed = masks.unpack(difference, d)
    plan = masks.plan_rice(changed, int(np.count_nonzero(changed)), below)
    if plan is not None:
        sections.append(_Section(h.DELTA, masks.write_rice(plan)))
    return [section for section in sections if len(section.data) < below]


def _code_outside(parts: Parts, pack: bool) -> _Section:
    if parts.kept_outside in (0, parts.outside_count):
        return _Section(h.ALL if parts.kept_outside else h.EMPTY)
    return _code_bits(parts.support_outside, parts.kept_outside, pack)


def _code_bits(bits: Bits, ones: int, pack: bool, positions: Positions | None = None) -> _Section:
    """Bitmap, or the gaps between the rarer of ones and zeros; the first of the smallest."""
    bitmap = masks.pack(bits)
    best = _Section(h.BITMAP, bitmap.tobytes())
    if pack:
        best = _pack_if_smaller(best.data, best.data, h.BITMAP)
    if 2 * ones <= len(bits):
        coding, plan = h.GAPS, masks.plan_rice(bits, ones, len(best.data), positions)
    else:
        coding, plan = h.HOLES, masks.plan_rice(~bits, len(bits) - ones, len(best.data))
    return best if plan is None else _Section(coding, masks.write_rice(plan))


def _value_section(parts: Parts, value_type: str, critical_coding: int, outside_coding: int) -> bytes:
    codes = v.to_codes(parts.kept_values, value_type)
    if h.INLINE not in (critical_coding, outside_coding):
        return v.write_section(codes, value_type, None, parts.kept)
    entries = _inline_entries(parts)
    present = parts.kept_positions if entries == parts.d else np.flatnonzero(parts.support_outside)
    return v.write_section(codes, value_type, present, entries)


def _pack_if_smaller(raw: bytes, prepared: bytes, coding: int = h.ALL) -> _Section:
    frame = packing.compress(prepared)
    return _Section(coding, frame, packed=True) if len(frame) < len(raw) else _Section(coding, raw)


def _flags(parts: Parts, critical: _Section, outside: _Section, value_section: _Section) -> int:
    return (
        h.PACKED_CRITICAL * critical.packed
        | h.PACKED_OUTSIDE * outside.packed
        | h.PACKED_VALUES * value_section.packed
        | h.CRITICAL_TRAVELS * parts.travels
    )
