"""Data files in their many forms for scripts/fuzz.py: packings of .npz, kinds of tar headers, images.

A repair makes checksums fit again, so that what they guard is reached.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np
from PIL import Image

BLOCK = 512
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
OTHER_MAGIC = (
    *(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n",
        b"GIF89a",
        b"II*\x00",
        b"MM\x00*",
        b"BM",
        b"8BPS",
    ),
    *(b"RIFF\xff\x00\x00\x00WEBPVP8 ", b"P6 4 4 255\n", b"DDS |\x00\x00\x00", b"\xc5\xd0\xd3\xc6", JPEG, PNG),
)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zipped(members: Mapping[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def tar(members: Mapping[str, bytes]) -> bytes:
    return b"".join(_member(name, content, b"0") for name, content in members.items()) + bytes(2 * BLOCK)


def extended_tars(members: Mapping[str, bytes]) -> list[bytes]:
    """The members behind PAX headers, behind long names, behind sparse files; and the three chained."""
    records = (b"18 GNU.sparse.map=0,1\n", b"22 GNU.sparse.major=1\n", b"22 GNU.sparse.minor=0\n")
    pax = b"".join(_member("x", record, b"x") for record in (*records, b"9 size=4\n", b"12 path=a/bc\n"))
    everywhere = _member("g", b"24 hdrcharset=BINARY 123\n", b"g")
    long = _member("@LongLink", b"a/long/name\0", b"L") + _member("@LongLink", b"link\0", b"K")
    sparse = _member("sparse", bytes(8), b"S")
    return [begin + tar(members) for begin in (pax, everywhere, long, sparse, pax + long * 2 + sparse + pax)]


def _member(name: str, content: bytes, kind: bytes) -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.type = len(content), kind
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % BLOCK)


def repair_tar(mutant: bytes) -> bytes:
    """Every header gets the checksum that fits."""
    blocks = bytearray(mutant)
    for at in range(0, len(blocks) - BLOCK + 1, BLOCK):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + BLOCK])
    return bytes(blocks)


def pngs() -> list[bytes]:
    noise = np.random.RandomState(0).randint(0, 256, (4, 4, 4)).astype(np.uint8)
    colour = Image.fromarray(noise, "RGBA")
    kinds = [_image(colour.convert("RGB").convert(mode), "PNG") for mode in ("1", "L", "P", "RGB", "RGBA")]
    return [*kinds, _image(colour, "PNG", save_all=True, append_images=[colour.rotate(90)])]


def jpegs() -> list[bytes]:
    colour = Image.fromarray(np.random.RandomState(0).randint(0, 256, (4, 4, 3)).astype(np.uint8), "RGB")
    return [
        _image(colour, "JPEG"),
        _image(colour, "JPEG", progressive=True),
        _image(colour.convert("CMYK"), "JPEG"),
    ]


def _image(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def repair_png(mutant: bytes) -> bytes:
    """Every chunk gets the checksum that fits."""
    content, at = bytearray(mutant), len(PNG)
    while at + 12 <= len(content):
        end = at + 8 + struct.unpack_from(">I", content, at)[0]
        if end + 4 > len(content):
            break
        struct.pack_into(">I", content, end, zlib.crc32(content[at + 4 : end]))
        at = end + 4
    return bytes(content)


def with_other_magic(mutant: bytes) -> bytes:
    """What another format begins with; which one follows from the mutant."""
    return OTHER_MAGIC[zlib.crc32(mutant) % len(OTHER_MAGIC)] + mutant[len(PNG) :]
