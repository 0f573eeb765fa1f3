"""The fixed header of a message: what it is for, how its sections are coded and how long they are."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpurin.errors import CorruptError, MismatchError, TruncatedError
from fedpurin.value_types import find_type, name_of

MAGIC = b"FPRN"
VERSION = 1
LENGTH = 68
MAX_D = 2**30 - 1  # so that the longest section, 4 bytes per parameter, fits its 32-bit length field
U32_MAX = 2**32 - 1

# How a set of positions is coded. The outside section knows EMPTY, ALL, BITMAP, GAPS, HOLES and INLINE only.
ABSENT, EMPTY, ALL, ECHO, BITMAP, GAPS, HOLES, INLINE, DELTA, DELTA_BITMAP = range(10)
CODING_NAMES = ("none", "empty", "all", "echo", "bitmap", "gaps", "holes", "inline", "delta", "delta-bitmap")
OUTSIDE_CODINGS = (EMPTY, ALL, BITMAP, GAPS, HOLES, INLINE)
REFERRING = (ECHO, DELTA, DELTA_BITMAP)
SIZED_BY_BITMAP = (BITMAP, DELTA_BITMAP)  # the only mask codings that may be packed

PACKED_CRITICAL, PACKED_OUTSIDE, PACKED_VALUES, CRITICAL_TRAVELS = 1, 2, 4, 8
ALL_FLAGS = 15


_BEFORE_CHECKSUM = struct.Struct("<4s6B2s5I8s6I")
_CHECKSUM = struct.Struct("<I")
assert _BEFORE_CHECKSUM.size + _CHECKSUM.size == LENGTH


@dataclass(frozen=True)
class Address:
    """What a message must be for."""

    fingerprint: bytes  # 8 bytes: fingerprint of the layout of the exchanged parameters
    d: int
    round: int  # up: the round trained; down: the round whose aggregation it carries
    client: int
    direction: Literal["up", "down"]

    def __post_init__(self) -> None:
        if len(self.fingerprint) != 8:
            raise ValueError(f"a layout fingerprint has 8 bytes, this one has {len(self.fingerprint)}")
        if not 1 <= self.d <= MAX_D:
            raise ValueError(f"d = {self.d} is outside 1..{MAX_D}; split the model over several messages")
        if self.direction not in ("up", "down"):
            raise ValueError(f"direction {self.direction!r} is neither 'up' nor 'down'")
        for name, number in (("round", self.round), ("client", self.client)):
            if not 0 <= number <= U32_MAX:
                raise ValueError(f"{name} = {number} is outside 0..{U32_MAX}")


@dataclass(frozen=True)
class Header:
    """The fields in the order of their bytes; counts and lengths are as claimed until the body is read."""

    direction: Literal["up", "down"]
    critical_coding: int
    outside_coding: int
    value_type: str
    flags: int
    client: int
    round: int
    confirmed: int  # down: the last round of this client's uploads that the server accepted; 0 = none
    reference: int  # the round of the mask that echo and delta build on; 0 = none
    proof: int  # checksum of that mask
    fingerprint: bytes
    d: int
    critical: int  # number of critical parameters
    kept: int  # number of values that travel
    critical_bytes: int
    outside_bytes: int
    value_bytes: int

    @property
    def critical_travels(self) -> bool:
        return bool(self.flags & CRITICAL_TRAVELS)

    @property
    def outside(self) -> int:
        """Number of positions outside the critical set."""
        return self.d - self.critical

    @property
    def kept_outside(self) -> int:
        return self.kept - (self.critical if self.critical_travels else 0)

    @property
    def mask_encoding(self) -> str:
        """Coding of the critical set, "+" coding of the support outside it where that says more."""
        critical = CODING_NAMES[self.critical_coding] + (".zst" if self.flags & PACKED_CRITICAL else "")
        outside = CODING_NAMES[self.outside_coding] + (".zst" if self.flags & PACKED_OUTSIDE else "")
        dense = self.critical_coding == ABSENT and self.outside_coding == ALL
        complete = self.critical_travels or self.critical_coding == EMPTY  # nothing left to say
        return critical if dense or (complete and self.outside_coding == EMPTY) else f"{critical}+{outside}"


def write(header: Header, sections: Sequence[bytes]) -> bytes:
    """The whole message."""
    direction, critical_coding, outside_coding, value_type, flags, *numbers = vars(header).values()
    codes = (("up", "down").index(direction), critical_coding, outside_coding, find_type(value_type).number)
    head = _BEFORE_CHECKSUM.pack(MAGIC, VERSION, *codes, flags, b"\0\0", *numbers)
    checksum = zlib.crc32(head)
    for section in sections:
        checksum = zlib.crc32(section, checksum)
    return b"".join((head, _CHECKSUM.pack(checksum), *sections))


def read(data: memoryview) -> Header:
    """Parse the header and check magic, version, lengths, checksum and every field that stands alone."""
    if len(data) < LENGTH:
        raise TruncatedError(f"{len(data)} bytes are shorter than the {LENGTH}-byte header; send it again")
    magic, version, direction, *fields = _BEFORE_CHECKSUM.unpack_from(data)
    critical_coding, outside_coding, value_type, flags, reserved, *numbers = fields
    if magic != MAGIC:
        raise CorruptError(f"magic {magic!r} is not {MAGIC!r}; these bytes are no fedpurin message")
    if version != VERSION:
        raise CorruptError(f"format version {version} is not {VERSION}; use the same fedpurin on both sides")
    claimed = LENGTH + sum(numbers[-3:])
    if claimed != len(data):
        raise TruncatedError(f"the header promises {claimed} bytes, {len(data)} arrived; send it again")
    checksum = zlib.crc32(data[LENGTH:], zlib.crc32(data[: _BEFORE_CHECKSUM.size]))
    if checksum != _CHECKSUM.unpack_from(data, _BEFORE_CHECKSUM.size)[0]:
        raise CorruptError("the checksum does not fit the bytes; they changed on the way, send them again")
    if direction > 1 or critical_coding > DELTA_BITMAP or outside_coding not in OUTSIDE_CODINGS:
        codes = f"direction {direction}, mask coding {critical_coding}, outside coding {outside_coding}"
        raise CorruptError(f"one of these is unknown: {codes}")
    name = name_of(value_type)
    if name is None:
        raise CorruptError(f"value type {value_type} is unknown")
    if flags & ~ALL_FLAGS or reserved != b"\0\0":
        raise CorruptError(f"reserved flags or bytes are set: flags {flags:#x}, bytes {reserved.hex()}")
    return Header("down" if direction else "up", critical_coding, outside_coding, name, flags, *numbers)


def check_address(header: Header, address: Address) -> None:
    for name in ("fingerprint", "d", "direction", "client", "round"):
        carried, wanted = getattr(header, name), getattr(address, name)
        if carried != wanted:
            carried, wanted = (x.hex() if isinstance(x, bytes) else x for x in (carried, wanted))
            raise MismatchError(
                f"the message is for {name} {carried}, expected {wanted}; "
                "both sides must run the same configuration and the same round"
            )


def check_consistent(header: Header) -> None:
    """Counts, codings and flags must fit each other, before anything is allocated from them."""
    h = header
    if h.critical > h.d or h.kept > h.d:
        raise CorruptError(f"{h.critical} critical and {h.kept} kept parameters cannot be among {h.d}")
    if not _count_fits(h.critical_coding, h.critical, h.d):
        raise CorruptError(f"{h.critical} of {h.d} critical does not fit mask coding {h.critical_coding}")
    if h.critical_travels and h.critical == 0:
        raise CorruptError("critical values are said to travel, but there are none")
    if not 0 <= h.kept_outside <= h.outside:
        raise CorruptError(f"{h.kept} kept values do not fit {h.critical} critical ones among {h.d}")
    if not _count_fits(h.outside_coding, h.kept_outside, h.outside):
        raise CorruptError(
            f"{h.kept_outside} of {h.outside} kept outside does not fit coding {h.outside_coding}"
        )
    if h.critical_coding == INLINE and not (h.critical_travels and h.outside_coding == EMPTY):
        raise CorruptError("an inline mask needs critical values that travel, and nothing else")
    refers = h.critical_coding in REFERRING
    if refers != (h.reference != 0) or (h.proof and not refers):
        raise CorruptError(f"mask coding {h.critical_coding} does not fit reference round {h.reference}")
    packed_mask = h.flags & PACKED_CRITICAL and h.critical_coding not in SIZED_BY_BITMAP
    packed_outside = h.flags & PACKED_OUTSIDE and h.outside_coding != BITMAP
    if packed_mask or packed_outside:
        raise CorruptError("only bitmaps and values can be packed")


def _count_fits(coding: int, count: int, total: int) -> bool:
    """Only EMPTY and ALL may code trivial sets, and EMPTY comes before ALL: one form for each set."""
    if coding in (ABSENT, EMPTY):
        return count == 0
    if coding == ALL:
        return count == total > 0
    return 0 < count < total
