"""No bytes make the decoder allocate more than the layout justifies; and a slice of the fuzz run."""

from __future__ import annotations

import importlib.util
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
import zstandard
from tampering import FLAGS, HEADER, VALUE_BYTES, sealed, u32

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.errors import CorruptError, WireError
from fedpurin.messages import Message

BOMB_D = 50_000
ADDRESS = wire.Address(b"layout01", BOMB_D, 1, 0, "up")


def packed_values(frame: bytes, d: int) -> bytes:
    """A dense float32 message with this frame as its packed value section."""
    data = wire.encode(Message(torch.zeros(1, d)), ADDRESS).data[:HEADER]
    head = bytearray(data)
    head[FLAGS] |= 4
    head[VALUE_BYTES : VALUE_BYTES + 4] = u32(len(frame))
    return sealed(bytes(head) + frame)


def frame_of_zeros(count: int, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(bytes(count))


def lying_frame(count: int, claimed: int) -> bytes:
    """A frame of `count` zeros that claims to hold `claimed`; its size field has 4 bytes."""
    frame = bytearray(frame_of_zeros(count))
    single_segment, size_code = frame[4] >> 5 & 1, frame[4] >> 6
    assert size_code == 2, "expected a 4-byte size field"
    at = 5 + (not single_segment)
    frame[at : at + 4] = u32(claimed)
    return bytes(frame)


@pytest.mark.parametrize(
    "frame",
    [
        frame_of_zeros(100_000_000),
        frame_of_zeros(100_000_000, write_content_size=False),
        lying_frame(100_000_000, 4 * BOMB_D),
        lying_frame(100_000, 4 * BOMB_D),  # less than it says
        frame_of_zeros(4 * BOMB_D) + b"\0",
        frame_of_zeros(4 * BOMB_D) * 2,
        frame_of_zeros(4 * BOMB_D)[:-1],
        zstandard.ZstdCompressor(write_checksum=True).compress(bytes(4 * BOMB_D))[:-4] + b"\1\2\3\4",
        b"\x50\x2a\x4d\x18" + u32(8) + bytes(8),  # a skippable frame
        b"",
        b"not zstd",
    ],
    ids=[
        "bomb",
        "silent bomb",
        "lying bomb",
        "short",
        "tail",
        "two frames",
        "cut",
        "checksum",
        "skip",
        "empty",
        "no",
    ],
)
def test_packed_sections_are_unpacked_only_to_the_size_that_is_due(frame: bytes) -> None:
    data = packed_values(frame, BOMB_D)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            wire.decode(data, ADDRESS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * BOMB_D


def test_a_good_frame_is_unpacked() -> None:
    decoded = wire.decode(packed_values(frame_of_zeros(4 * BOMB_D), BOMB_D), ADDRESS)
    assert torch.equal(decoded.message.values_nd, torch.zeros(1, BOMB_D))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_memory_is_bounded_by_the_layout(share: float) -> None:
    d = 400_000
    critical = torch.rand(1, d, generator=torch.Generator().manual_seed(0)) < share
    to = wire.Address(b"layout01", d, 1, 0, "up")
    message = Message(torch.where(critical, 1.0, 0.0), critical, critical)
    before = wire.Reference(1, pack_bits(~critical)[0])
    data = wire.encode(message, to, pack=True, reference=before).data
    tracemalloc.start()
    try:
        wire.decode(data, to, known=[before])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Values 4 d, bits 2 d, an index array 8 d, gaps another 2 x 8 d. numpy reports to tracemalloc.
    assert peak < 32 * d


def test_a_slice_of_the_fuzz_run_finds_nothing() -> None:
    path = Path(__file__).parents[2] / "scripts" / "fuzz_wire.py"
    spec = importlib.util.spec_from_file_location("fuzz_wire", path)
    assert spec is not None
    assert spec.loader is not None
    fuzz_wire = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_wire"] = fuzz_wire  # dataclasses look their module up
    spec.loader.exec_module(fuzz_wire)
    outcomes = fuzz_wire.fuzz(count=20_000, seed=0)
    assert outcomes.total() == 20_000
    names = {error.__name__ for error in WireError.__subclasses__()}
    assert outcomes.keys() - {"accepted"} == names, "the mutations no longer reach every kind of error"
    assert outcomes["accepted"] > 500, "the mutations no longer get past the checks"
