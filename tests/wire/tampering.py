"""Ways to change the bytes of a message while its checksum stays right."""

from __future__ import annotations

import struct
import zlib

from golden_cases import Case

from fedpurin import wire

HEADER = wire.HEADER_BYTES
# Offsets of header fields, from the specification.
VERSION, DIRECTION, CRITICAL_CODING, OUTSIDE_CODING, VALUE_TYPE, FLAGS, RESERVED = 4, 5, 6, 7, 8, 9, 10
REFERENCE, PROOF, D, K, KEPT, CRITICAL_BYTES, OUTSIDE_BYTES, VALUE_BYTES = 24, 28, 40, 44, 48, 52, 56, 60


def encode(case: Case) -> bytes:
    return wire.encode(
        case.message,
        case.address,
        values=case.values,
        pack=case.pack,
        reference=case.reference,
        confirmed=case.confirmed,
    ).data


def decode(data: bytes, case: Case) -> wire.Decoded:
    return wire.decode(data, case.address, known=case.known)


def sealed(data: bytes | bytearray) -> bytes:
    """The same bytes with the checksum that belongs to them."""
    checksum = zlib.crc32(bytes(data[: HEADER - 4]) + bytes(data[HEADER:]))
    return bytes(data[: HEADER - 4]) + struct.pack("<I", checksum) + bytes(data[HEADER:])


def altered(data: bytes, changes: dict[int, int | bytes]) -> bytes:
    """Put bytes or a small number at these offsets, and seal the message."""
    mutant = bytearray(data)
    for at, new in changes.items():
        new = bytes([new]) if isinstance(new, int) else new
        mutant[at : at + len(new)] = new
    return sealed(mutant)


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def resectioned(data: bytes, changes: dict[int, int | bytes], *sections: bytes) -> bytes:
    """Other sections under the same header, with the lengths that belong to them."""
    lengths = b"".join(u32(len(section)) for section in sections)
    return altered(data[:HEADER] + b"".join(sections), {CRITICAL_BYTES: lengths} | changes)
