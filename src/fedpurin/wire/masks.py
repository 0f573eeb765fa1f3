"""Sets of positions as bytes: bitmaps, and gaps between neighbours in a Rice code.

A Rice section keeps the low bits of all gaps apart from their unary parts. That changes no size, and
lets numpy read and write it without a loop.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from fedpurin.errors import CorruptError
from fedpurin.value_types.base import Bytes

Bits = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

RICE_HEAD = struct.Struct("<BI")  # low bits per gap, number of gaps
MAX_LOW_BITS = 30


def bytes_for(bits: int) -> int:
    return (bits + 7) // 8


def pack(bits: Bits) -> Bytes:
    return np.packbits(bits, bitorder="little")


def unpack(packed: Bytes, count: int) -> Bits:
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def read_bitmap(packed: Bytes, count: int, ones: int) -> Bits:
    """`count` bits of which `ones` are set; `packed` has just the bytes they need, unused bits 0."""
    if count % 8 and packed[-1] >> (count % 8):
        raise CorruptError("the unused bits of a bitmap's last byte are not 0")
    bits = unpack(packed, count)
    counted = int(np.count_nonzero(bits))
    if counted != ones:
        raise CorruptError(f"a bitmap has {counted} ones where the header counts {ones}")
    return bits


def write_rice(bits: Bits, n: int, below: int, set_positions: Positions | None = None) -> bytes | None:
    """The best Rice code of the n > 0 set bits, if it takes fewer than `below` bytes; else None.

    With b low bits, n gaps that sum to s cost n * (b + 1) + sum(gap >> b) bits, and the sum is at least
    (s - n * (2^b - 1)) / 2^b. Sets so dense that even this bound saves less than a tenth are rejected
    without looking for their gaps; if they are random, the bitmap is shorter anyway.
    `set_positions` are the positions of the set bits, where the caller has them already.
    """
    total = _last(bits) + 1 - n
    guess = max((total // n).bit_length() - 1, 0)
    gaps: Positions | None = None
    best: tuple[int, int] | None = None
    for b in range(max(guess - 1, 0), min(guess + 1, MAX_LOW_BITS) + 1):
        limit = below if best is None else best[0]
        least = max((total - n * ((1 << b) - 1)) >> b, 0)
        if _rice_size(n, b, least) >= (limit if best else 0.9 * limit):
            continue
        if gaps is None:
            positions = np.flatnonzero(bits) if set_positions is None else set_positions
            gaps = np.diff(positions, prepend=np.int64(-1)) - 1
        size = _rice_size(n, b, total if b == 0 else int((gaps >> b).sum()))
        if size < limit:
            best = size, b
    if best is None or gaps is None:
        return None
    return _rice(gaps, best[1])


def _last(bits: Bits) -> int:
    """The last set bit; in all but odd masks it is near the end."""
    tail = max(len(bits) - 4096, 0)
    in_tail = np.flatnonzero(bits[tail:])
    return tail + int(in_tail[-1]) if len(in_tail) else int(np.flatnonzero(bits)[-1])


def _rice_size(n: int, low_bits: int, unary_zeros: int) -> int:
    return RICE_HEAD.size + bytes_for(n * low_bits) + bytes_for(n + unary_zeros)


def _rice(gaps: Positions, b: int) -> bytes:
    low_nb = (gaps[:, None] >> np.arange(b)) & 1
    ends = np.cumsum((gaps >> b) + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, np.bool_)
    unary[ends] = True
    low = pack(low_nb.astype(np.bool_).reshape(-1))
    return RICE_HEAD.pack(b, len(gaps)) + low.tobytes() + pack(unary).tobytes()


def read_rice(section: memoryview, count: int) -> Positions:
    """The ascending positions, all below `count`, at least one of them."""
    if not RICE_HEAD.size < len(section) < bytes_for(count):
        raise CorruptError(f"a gap section of {len(section)} bytes must be shorter than a {count}-bit bitmap")
    b, n = RICE_HEAD.unpack_from(section)
    body = np.frombuffer(section, np.uint8, offset=RICE_HEAD.size)
    low_bytes = bytes_for(n * b)
    if b > MAX_LOW_BITS or not 1 <= n <= count or low_bytes >= len(body):
        raise CorruptError(f"{n} gaps with {b} low bits do not fit {len(body)} bytes and {count} positions")
    unary = body[low_bytes:]
    ends = np.flatnonzero(unpack(unary, 8 * len(unary)))
    if len(ends) != n or bytes_for(int(ends[-1]) + 1) != len(unary):
        raise CorruptError(f"the gap section's unary part holds {len(ends)} gaps where {n} are announced")
    gaps = (np.diff(ends, prepend=-1) - 1) << b
    if b:
        gaps |= _read_low(body[:low_bytes], n, b)
    # Each gap is checked before the sum, so that the sum cannot overflow.
    if int(gaps.max()) >= count:
        raise CorruptError(f"a gap of {int(gaps.max())} leads beyond {count} positions")
    positions: Positions = np.cumsum(gaps + 1) - 1
    if int(positions[-1]) >= count:
        raise CorruptError(f"position {int(positions[-1])} is beyond the {count} that exist")
    return positions


def _read_low(packed: Bytes, n: int, b: int) -> Positions:
    used = (n * b) % 8
    if used and packed[-1] >> used:
        raise CorruptError("the unused bits after a gap section's low bits are not 0")
    low_nb = unpack(packed, n * b).reshape(n, b)
    low = np.zeros(n, np.int64)
    for bit in range(b):
        low |= low_nb[:, bit].astype(np.int64) << bit
    return low
