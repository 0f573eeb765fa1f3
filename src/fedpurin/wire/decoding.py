"""Bytes to a message. All is checked before it is used, and the layout bounds what is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpurin.errors import CorruptError, UnknownReferenceError
from fedpurin.messages import Message
from fedpurin.value_types import find_type
from fedpurin.value_types.base import Bytes, Codes, Floats
from fedpurin.wire import header as h
from fedpurin.wire import masks, packing
from fedpurin.wire import values as v
from fedpurin.wire.encoding import Reference
from fedpurin.wire.masks import Bits


@dataclass(frozen=True)
class Decoded:
    head: h.Header
    message: Message  # n = 1; +0.0 wherever no value travelled
    packed: Tensor | None  # uint8 [ceil(d / 8)]: the critical mask, see core.bits

    @property
    def confirmed(self) -> int:
        return self.head.confirmed

    @property
    def value_type(self) -> str:
        return self.head.value_type


def peek(data: bytes | memoryview) -> h.Header:
    """The header of a complete and unchanged message, whoever it is for."""
    return h.read(memoryview(data).cast("B"))


def decode(
    data: bytes | memoryview,
    address: h.Address,
    *,
    known: Sequence[Reference] = (),
    head: h.Header | None = None,
) -> Decoded:
    """The message, if it is for `address`; `known` are the masks it may refer to. Raises only WireError.

    `head` is what `peek` gave for these very bytes, whose checksum then is not computed again.
    """
    view = memoryview(data).cast("B")
    head = head or h.read(view)
    h.check_address(head, address)
    h.check_consistent(head)
    critical_end = h.LENGTH + head.critical_bytes
    outside_end = critical_end + head.outside_bytes
    # The value section's length is settled before masks are decoded: nearly all memory depends on it.
    packed_values = bool(head.flags & h.PACKED_VALUES)
    codes = v.read_section(view[outside_end:], head.value_type, _entries(head), head.kept, packed_values)
    if head.critical_coding != h.INLINE:
        critical = _read_critical(view[h.LENGTH : critical_end], head, known)
        support, codes = _read_support(view[critical_end:outside_end], critical, codes, head)
    else:
        _expect_no_bytes(head.critical_bytes, head.outside_bytes)
        support, codes = _strip_reserved(codes, head)
        critical = support
    values = _scatter(find_type(head.value_type).from_codes(codes), support, head.d)
    message = Message(torch.from_numpy(values)[None], _row(critical), _row(support))
    packed = None if critical is None else torch.from_numpy(masks.pack(critical))
    return Decoded(head, message, packed)


def _row(bits: Bits | None) -> Tensor | None:
    return None if bits is None else torch.from_numpy(bits)[None]


def _entries(head: h.Header) -> int:
    if h.INLINE not in (head.critical_coding, head.outside_coding):
        return head.kept
    if find_type(head.value_type).reserved is None:
        raise CorruptError(f"{head.value_type} can mark no position as left out, but a set is coded inline")
    return head.d if head.critical_travels else head.outside


def _expect_no_bytes(*lengths: int) -> None:
    if any(lengths):
        raise CorruptError(f"a mask coding without bytes comes with a section of {max(lengths)} bytes")


def _strip_reserved(codes: Codes, head: h.Header) -> tuple[Bits, Codes]:
    present = codes.items != find_type(head.value_type).reserved
    kept = int(np.count_nonzero(present))
    if kept != head.kept:
        raise CorruptError(f"{kept} values are not marked as left out where the header counts {head.kept}")
    return present, Codes(codes.items.take(np.flatnonzero(present)), codes.scales)


def _read_critical(section: memoryview, head: h.Header, known: Sequence[Reference]) -> Bits | None:
    """bool [d], or None if the method knows no critical parameters."""
    coding = head.critical_coding
    if coding == h.ABSENT:
        _expect_no_bytes(len(section))
        return None
    if coding not in h.REFERRING:
        return _read_set(section, coding, bool(head.flags & h.PACKED_CRITICAL), head.d, head.critical)
    reference = _find(head.reference, known)
    if reference.proof(head.d) != head.proof:
        raise UnknownReferenceError(
            f"the mask of round {head.reference} that the message builds on is not the one known here; "
            "ask for a message without reference"
        )
    return _apply_difference(section, reference.bytes_for(head.d), head)


def _apply_difference(section: memoryview, base: Bytes, head: h.Header) -> Bits:
    if head.critical_coding == h.DELTA_BITMAP:
        difference = _read_bitmap_bytes(section, bool(head.flags & h.PACKED_CRITICAL), head.d)
        return masks.read_bitmap(difference ^ base, head.d, head.critical)
    bits = masks.unpack(base, head.d)
    if head.critical_coding == h.DELTA:
        changed = masks.read_rice(section, head.d)
        bits[changed] = ~bits[changed]
    else:
        _expect_no_bytes(len(section))
    ones = int(np.count_nonzero(bits))
    if ones != head.critical:
        raise CorruptError(f"the mask has {ones} ones where the header counts {head.critical}")
    return bits


def _find(round_: int, known: Sequence[Reference]) -> Reference:
    for reference in known:
        if reference.round == round_:
            return reference
    rounds = ", ".join(str(reference.round) for reference in known) or "none"
    raise UnknownReferenceError(
        f"the message builds on the mask of round {round_}; known here: {rounds}; "
        "ask for a message without reference"
    )


def _read_set(section: memoryview, coding: int, packed: bool, count: int, ones: int) -> Bits:
    if coding in (h.EMPTY, h.ALL):
        _expect_no_bytes(len(section))
        return np.full(count, coding == h.ALL)
    if coding == h.BITMAP:
        return masks.read_bitmap(_read_bitmap_bytes(section, packed, count), count, ones)
    positions = masks.read_rice(section, count)
    if len(positions) != (ones if coding == h.GAPS else count - ones):
        raise CorruptError(f"{len(positions)} gaps do not fit {ones} ones among {count}")
    bits = np.full(count, coding == h.HOLES)
    bits[positions] = coding == h.GAPS
    return bits


def _read_bitmap_bytes(section: memoryview, packed: bool, count: int) -> Bytes:
    size = masks.bytes_for(count)
    if packed:
        return packing.decompress(section, size)
    if len(section) != size:
        raise CorruptError(f"a bitmap of {count} bits has {size} bytes, not {len(section)}")
    return np.frombuffer(section, np.uint8)


def _read_support(
    section: memoryview, critical: Bits | None, codes: Codes, head: h.Header
) -> tuple[Bits | None, Codes]:
    """bool [d] or None for all, and the codes without those that mark a value as left out."""
    if head.outside_coding in (h.EMPTY, h.ALL, h.INLINE):
        _expect_no_bytes(len(section))
    if head.kept == head.d:
        return None, codes
    if head.outside_coding == h.INLINE:
        present, codes = _strip_reserved(codes, head)
        if len(present) < head.d:  # entries for the positions outside only
            return _merge(critical, present, head), codes
        if critical is not None and (critical & ~present).any():
            raise CorruptError("a critical value is marked as left out although critical values travel")
        return present, codes
    packed = bool(head.flags & h.PACKED_OUTSIDE)
    outside = _read_set(section, head.outside_coding, packed, head.outside, head.kept_outside)
    return _merge(critical, outside, head), codes


def _merge(critical: Bits | None, outside: Bits, head: h.Header) -> Bits:
    """Spread the bits of the outside positions over all d, and add the critical ones if they travel."""
    if critical is None or head.critical == 0:
        return outside
    if head.kept_outside == 0:
        return critical if head.critical_travels else np.zeros(head.d, np.bool_)
    support = critical.copy() if head.critical_travels else np.zeros(head.d, np.bool_)
    support[np.flatnonzero(~critical)] = outside
    return support


def _scatter(kept: Floats, support: Bits | None, d: int) -> Floats:
    if support is None:
        return kept if kept.flags.writeable else kept.copy()
    values = np.zeros(d, np.float32)
    values[np.flatnonzero(support)] = kept
    return values
