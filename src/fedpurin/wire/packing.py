"""Lossless packing: zstd, with an output size that is known before decompression."""

from __future__ import annotations

import numpy as np
import zstandard

from fedpurin.errors import CorruptError
from fedpurin.value_types.base import Bytes

LEVEL = 3


def compress(raw: bytes) -> bytes:
    """One zstd frame that states its content size."""
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(raw)


def decompress(frame: memoryview, expected: int) -> Bytes:
    """Exactly `expected` bytes, or an error before more than that is allocated."""
    if len(frame) >= expected:
        raise CorruptError(
            f"a packed section of {len(frame)} bytes must be shorter than its {expected} bytes"
        )
    try:
        claimed = zstandard.get_frame_parameters(frame).content_size
        if claimed != expected:
            raise CorruptError(f"a packed section claims {claimed} bytes where {expected} are expected")
        # A frame may also ask for a large window; nothing needs one larger than its content.
        window = max(1 << (expected - 1).bit_length(), 1024)
        raw = zstandard.ZstdDecompressor(max_window_size=window).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptError(f"a packed section cannot be unpacked: {error}") from error
    if len(raw) != expected:
        raise CorruptError(f"a packed section holds {len(raw)} bytes where {expected} are expected")
    return np.frombuffer(raw, np.uint8)
