"""A second decoder, written from the specification alone: plain loops, nothing from fedpurin.

It trusts its input. That it decodes the golden messages shows that the specification suffices.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import zstandard


@dataclass
class Plain:
    fields: dict[str, int]
    fingerprint: bytes
    critical: list[int] | None  # positions
    values: dict[int, float]  # by position


def decode(data: bytes, reference_bitmap: bytes = b"") -> Plain:
    names = [
        "magic",
        "version",
        "direction",
        "critical_coding",
        "outside_coding",
        "value_type",
        "flags",
        "reserved",
        "client",
        "round",
        "confirmed",
        "reference",
        "proof",
        "fingerprint",
        "d",
        "k",
        "kept",
        "critical_bytes",
        "outside_bytes",
        "value_bytes",
        "crc",
    ]
    f = dict(zip(names, struct.unpack_from("<4sBBBBBBHIIIII8sIIIIIII", data), strict=True))
    assert f["magic"] == b"FPRN"
    assert f["version"] == 1
    assert f["crc"] == zlib.crc32(data[:64] + data[68:])
    at = 68
    sections = []
    for name in ("critical_bytes", "outside_bytes", "value_bytes"):
        sections.append(data[at : at + f[name]])
        at += f[name]
    assert at == len(data)
    critical_bytes, outside_bytes, value_bytes = sections
    d, kept, travels = f["d"], f["kept"], bool(f["flags"] & 8)

    inline = 7 in (f["critical_coding"], f["outside_coding"])
    entries = kept if not inline else d if travels else d - f["k"]
    items = read_items(value_bytes, f["value_type"], bool(f["flags"] & 4), entries, kept)

    if f["critical_coding"] == 7:
        critical = [j for j in range(d) if items[j] is not None]
    else:
        if f["reference"]:
            assert zlib.crc32(reference_bitmap) == f["proof"]
        critical = read_set(f["critical_coding"], critical_bytes, d, bool(f["flags"] & 1), reference_bitmap)
    outside_positions = [j for j in range(d) if j not in set(critical)]
    if f["outside_coding"] != 7:
        chosen = read_set(f["outside_coding"], outside_bytes, len(outside_positions), bool(f["flags"] & 2))
        positions = sorted([outside_positions[i] for i in chosen] + (critical if travels else []))
    else:
        candidates = range(d) if travels else outside_positions
        positions = [j for j, item in zip(candidates, items, strict=True) if item is not None]
    present = [item for item in items if item is not None]
    none = f["critical_coding"] == 0
    return Plain(
        fields={name: number for name, number in f.items() if isinstance(number, int)},
        fingerprint=f["fingerprint"],
        critical=None if none else critical,
        values=dict(zip(positions, present, strict=True)),
    )


def read_set(coding: int, section: bytes, n: int, packed: bool, reference: bytes = b"") -> list[int]:
    if packed:
        section = zstandard.ZstdDecompressor().decompress(section)
    if coding in (0, 1):
        return []
    if coding == 2:
        return list(range(n))
    if coding == 3:
        return bits_set(reference)
    if coding == 4:
        return bits_set(section)
    if coding == 5:
        return gap_list(section)
    if coding == 6:
        return sorted(set(range(n)) - set(gap_list(section)))
    difference = gap_list(section) if coding == 8 else bits_set(section)
    return sorted(set(bits_set(reference)) ^ set(difference))


def bits_set(section: bytes) -> list[int]:
    return [j for j in range(8 * len(section)) if section[j // 8] >> (j % 8) & 1]


def gap_list(section: bytes) -> list[int]:
    b, n = struct.unpack_from("<BI", section)
    low_bytes = (n * b + 7) // 8
    low = set(bits_set(section[5 : 5 + low_bytes]))
    unary = section[5 + low_bytes :]
    positions, position, at = [], -1, 0
    for i in range(n):
        gap = sum(1 << bit for bit in range(b) if i * b + bit in low)
        while not unary[at // 8] >> (at % 8) & 1:
            gap += 1 << b
            at += 1
        at += 1
        position += gap + 1
        positions.append(position)
    return positions


def read_items(section: bytes, value_type: int, packed: bool, entries: int, kept: int) -> list[float | None]:
    scale_bytes = 4 * ((kept + 255) // 256) if value_type in (4, 5) else 0
    if packed:
        section = zstandard.ZstdDecompressor().decompress(section)
    scales, items = section[:scale_bytes], section[scale_bytes:]
    if value_type == 5:
        assert entries == kept
        return read_signs(scales, items, kept)
    size = {1: 4, 2: 2, 3: 2, 4: 1}[value_type]
    assert len(items) == entries * size
    if packed:
        items = bytes(items[plane * entries + i] for i in range(entries) for plane in range(size))
    values: list[float | None] = []
    rank = 0
    for i in range(entries):
        item = items[i * size : (i + 1) * size]
        if item == (b"\x80" if value_type == 4 else b"\xff" * size):
            values.append(None)
            continue
        if value_type == 1:
            value = struct.unpack("<f", item)[0]
        elif value_type == 2:
            value = struct.unpack("<e", item)[0]
        elif value_type == 3:
            value = struct.unpack("<f", b"\0\0" + item)[0]
        else:
            scale = struct.unpack_from("<f", scales, 4 * (rank // 256))[0]
            exact = struct.unpack("<b", item)[0] * scale  # a double holds this product exactly
            value = struct.unpack("<f", struct.pack("<f", exact))[0]
        values.append(value)
        rank += 1
    return values


def read_signs(scales: bytes, section: bytes, kept: int) -> list[float | None]:
    assert len(section) == (kept + 7) // 8
    negative = set(bits_set(section))
    assert all(i < kept for i in negative)
    values: list[float | None] = []
    for i in range(kept):
        scale = struct.unpack_from("<f", scales, 4 * (i // 256))[0]
        values.append(-scale if i in negative else scale)
    return values
