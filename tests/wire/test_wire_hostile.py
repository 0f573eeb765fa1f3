"""Bytes from elsewhere: every malformation ends in a named error."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
import zstandard
from golden_cases import CASES, build, mask, reference
from tampering import (
    CRITICAL_BYTES,
    CRITICAL_CODING,
    DIRECTION,
    FLAGS,
    HEADER,
    KEPT,
    OUTSIDE_BYTES,
    OUTSIDE_CODING,
    PROOF,
    REFERENCE,
    RESERVED,
    VALUE_BYTES,
    VALUE_TYPE,
    VERSION,
    K,
    altered,
    decode,
    encode,
    resectioned,
    u32,
)

from fedpurin import wire
from fedpurin.errors import (
    CorruptError,
    MismatchError,
    NotFiniteError,
    TruncatedError,
    UnknownReferenceError,
)


@pytest.mark.parametrize("name", CASES)
def test_every_truncation_is_noticed(name: str) -> None:
    data = encode(CASES[name])
    for length in range(len(data)):
        with pytest.raises(TruncatedError):
            decode(data[:length], CASES[name])


def test_left_over_bytes_are_noticed() -> None:
    data = encode(CASES["bitmap"])
    with pytest.raises(TruncatedError, match=r"promises 82 bytes, 83 arrived"):
        decode(data + b"\0", CASES["bitmap"])


@pytest.mark.parametrize(
    "name",
    ["bitmap", "gaps", "echo and bitmap", "inline mask", "packed bitmap and values", "signs of a few"],
)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    data = encode(CASES[name])
    for bit in range(8 * len(data)):
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptError, TruncatedError)):
            decode(bytes(mutant), CASES[name])


def test_random_bytes_are_no_message() -> None:
    random = np.random.default_rng(0)
    for length in (0, 1, HEADER - 1, HEADER, 1000):
        with pytest.raises((CorruptError, TruncatedError)):
            decode(random.bytes(length), CASES["bitmap"])


@pytest.mark.parametrize(
    "wanted",
    [
        {"fingerprint": b"another!"},
        {"d": 11},
        {"round": 6},
        {"client": 8},
        {"direction": "down"},
    ],
)
def test_a_message_for_somebody_else_is_refused(wanted: dict[str, object]) -> None:
    case = CASES["bitmap"]
    with pytest.raises(MismatchError, match=next(iter(wanted))):
        wire.decode(encode(case), replace(case.address, **wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bitmap", {VERSION: 2}),
        ("bitmap", {DIRECTION: 2}),
        ("bitmap", {CRITICAL_CODING: 10}),
        ("bitmap", {OUTSIDE_CODING: 0}),
        ("bitmap", {OUTSIDE_CODING: 3}),
        ("bitmap", {VALUE_TYPE: 0}),
        ("bitmap", {VALUE_TYPE: 6}),
        ("bitmap", {VALUE_TYPE: 2}),  # 12 bytes are not three float16
        ("bitmap", {VALUE_TYPE: 5}),  # nor a scale and three signs
        ("bitmap", {FLAGS: 8 + 16}),
        ("bitmap", {FLAGS: 8 + 1}),  # a bitmap that is no zstd frame
        ("bitmap", {FLAGS: 8 + 2}),  # packed, but nothing there
        ("bitmap", {FLAGS: 8 + 4}),
        ("bitmap", {FLAGS: 0}),  # critical values do not travel, but three are kept
        ("bitmap", {RESERVED: 1}),
        ("bitmap", {REFERENCE: 1}),  # a bitmap refers to nothing
        ("bitmap", {PROOF: 1}),
        ("bitmap", {K: u32(4)}),
        ("bitmap", {K: u32(11)}),
        ("bitmap", {K: u32(2**32 - 1)}),
        ("bitmap", {K: u32(2), KEPT: u32(2), VALUE_BYTES: u32(12)}),  # count and bitmap differ
        ("bitmap", {KEPT: u32(2**32 - 1)}),
        ("bitmap", {KEPT: u32(4)}),
        ("bitmap", {HEADER + 1: 0x82}),  # a bit beyond position 9
        ("bitmap", {CRITICAL_CODING: 5}),  # too short for a gap list
        ("bitmap", {CRITICAL_CODING: 7}),  # inline has no mask bytes
        ("gaps", {HEADER: 31}),  # too many low bits
        ("gaps", {HEADER: 30}),  # low bits beyond the section
        ("gaps", {HEADER + 1: u32(5)}),
        ("gaps", {HEADER + 1: u32(0)}),
        ("gaps", {HEADER + 1: u32(2**32 - 1)}),
        ("gaps", {HEADER + 6: 0x80}),  # padding of the low bits
        ("gaps", {HEADER + 8: 0}),  # a one is missing
        ("gaps", {HEADER + 8: 0x21}),  # one too many
        ("gaps", {HEADER + 7: b"\x00\xf0"}),  # beyond position 99
        ("holes, values not sent", {HEADER + 9: 3}),  # two values announced, one counted
        ("empty", {K: u32(1)}),
        ("empty", {CRITICAL_CODING: 4}),
        ("empty", {FLAGS: 8}),
        ("all", {CRITICAL_CODING: 4}),
        ("all", {K: u32(1)}),
        ("dense float32", {K: u32(1)}),
        ("dense float32", {FLAGS: 8}),
        ("dense float32", {CRITICAL_BYTES: u32(4), VALUE_BYTES: u32(8)}),  # bytes without a purpose
        ("dense float32", {OUTSIDE_BYTES: u32(4), VALUE_BYTES: u32(8)}),
        ("dense int8", {HEADER + 4: 0x80}),  # the reserved code
        ("dense int8", {HEADER: struct.pack("<f", -2.0)}),
        ("dense int8", {HEADER: struct.pack("<f", -0.0)}),
        ("dense int8", {HEADER: struct.pack("<f", 2.0**122)}),
        ("dense int8", {HEADER: struct.pack("<f", 0.0)}),  # a scale of 0 with codes that are not
        ("dense sign", {HEADER: struct.pack("<f", -4.0)}),
        ("dense sign", {HEADER: struct.pack("<f", -0.0)}),
        ("dense sign", {HEADER: struct.pack("<f", 2.0**122)}),
        ("dense sign", {HEADER: struct.pack("<f", 0.0)}),  # a scale of 0 with bits that are not
        ("dense sign", {HEADER + 5: 0x03}),  # a bit beyond the ninth sign
        ("dense sign", {HEADER + 5: 0x81}),
        ("dense sign", {KEPT: u32(8)}),
        ("dense sign", {FLAGS: 4}),  # signs that are no zstd frame
        ("dense sign", {VALUE_TYPE: 4}),
        ("signs of a few", {OUTSIDE_CODING: 7}),
        ("inline mask", {HEADER + 5: 0x80}),  # nine entries, two of them marked, eight counted
        ("inline mask", {OUTSIDE_CODING: 2}),
        ("inline support", {HEADER + 4: 0x80, HEADER + 20: 1}),  # a critical value marked as left out
        ("echo and bitmap", {REFERENCE: 0}),
        ("echo and bitmap", {K: u32(3), KEPT: u32(5)}),
        ("delta", {HEADER + 1: u32(2)}),
    ],
)
def test_contradictions_are_refused_even_with_a_good_checksum(
    name: str, changes: dict[int, int | bytes]
) -> None:
    with pytest.raises(CorruptError):
        decode(altered(encode(CASES[name]), changes), CASES[name])


ONE = struct.pack("<f", 1.0)


@pytest.mark.parametrize(
    ("name", "changes", "sections", "complaint"),
    [
        ("dense float32", {}, (b"?", b"", ONE * 3), "without bytes"),
        ("dense float32", {}, (b"", b"?", ONE * 3), "without bytes"),
        ("inline mask", {}, (b"?", b"", ONE + b"\1" * 8 + b"\x80"), "without bytes"),
        ("echo and bitmap", {}, (b"?", b"\x21", ONE * 4), "without bytes"),
        ("echo and bitmap", {K: u32(3), KEPT: u32(5)}, (b"", b"\x21", ONE * 5), "2 ones where .* counts 3"),
        ("echo and bitmap", {}, (b"", b"\x21\0", ONE * 4), "8 bits has 1 bytes, not 2"),
        ("bitmap", {}, (b"\x12", b"", ONE * 3), "10 bits has 2 bytes, not 1"),
        ("bitmap", {}, (b"\x12\2\0", b"", ONE * 3), "10 bits has 2 bytes, not 3"),
        (
            "gaps",
            {K: u32(3), KEPT: u32(3)},
            (bytes.fromhex("030400000023006120"), b"", ONE * 3),
            "4 gaps do not fit",
        ),
        ("gaps", {}, (bytes.fromhex("0304000000230061200000"), b"", ONE * 4), "unary part"),
        (
            "gaps",
            {},
            (bytes.fromhex("1e01000000ffffff3f01"), b"", ONE * 4),
            "gap of 1073741823 leads beyond 100",
        ),
        (
            "gaps",
            {},
            (bytes.fromhex("0004000000") + bytes(20), b"", ONE * 4),
            "shorter than a 100-bit bitmap",
        ),
        ("inline mask", {KEPT: u32(9)}, (b"", b"", ONE + b"\1" * 9), "fit"),
        ("inline mask", {FLAGS: 0, KEPT: u32(0)}, (b"", b"", b"\x80" * 9), "inline mask needs"),
        ("bitmap", {VALUE_TYPE: 6}, (b"\x12\2", b"", ONE * 3), "value type 6 is unknown"),
        ("dense sign", {}, (b"", b"", ONE + b"\x4a"), "9 sign values take 6 bytes, not 5"),
        ("dense sign", {}, (b"", b"", ONE + b"\x4a\1\0"), "9 sign values take 6 bytes, not 7"),
        ("dense sign", {}, (b"", b"", b"\x4a\1"), "9 sign values take 6 bytes, not 2"),
        ("dense sign", {}, (b"", b"", ONE + b"\x4a\2"), "unused bits"),
        ("dense sign", {}, (b"", b"", bytes(5) + b"\1"), "scale 0 has bits that are not 0"),
        ("signs of a few", {}, (b"", b"\x12\2", ONE + b"\x0e"), "unused bits"),
    ],
)
def test_sections_that_do_not_fit_their_header_are_refused(
    name: str, changes: dict[int, int | bytes], sections: tuple[bytes, ...], complaint: str
) -> None:
    with pytest.raises(CorruptError, match=complaint):
        decode(resectioned(encode(CASES[name]), changes, *sections), CASES[name])


@pytest.mark.parametrize("packed", [0, 4])
@pytest.mark.parametrize(
    ("name", "entries"), [("inline mask", 9), ("inline support", 17), ("inline support outside", 15)]
)
@pytest.mark.parametrize("content", [b"\0", b"\xff", b"\x80"])
def test_signs_cannot_mark_so_nothing_is_inline_in_them(
    name: str, entries: int, content: bytes, packed: int
) -> None:
    """As many items as there are positions, kept values or bytes: no length makes such a message good."""
    case, travels = CASES[name.removesuffix(" outside")], not name.endswith("outside")
    changes: dict[int, int | bytes] = {VALUE_TYPE: 5, FLAGS: packed | 8 * travels}
    if not travels:
        changes[KEPT] = u32(14)
    for size in (0, 1, -(-entries // 8), entries - 1, entries, 1000):
        section = ONE + content * size
        if packed:
            section = zstandard.ZstdCompressor().compress(section)
        data = resectioned(encode(case), changes, b"", b"", section)
        with pytest.raises(CorruptError, match="sign can mark no position as left out"):
            decode(data, case)


def test_a_zero_scale_stands_for_positive_zeros() -> None:
    data = resectioned(encode(CASES["dense sign"]), {}, b"", b"", bytes(6))
    assert decode(data, CASES["dense sign"]).message.values_nd.view(torch.int32).tolist() == [[0] * 9]


def test_the_largest_scale_of_signs_is_accepted() -> None:
    data = altered(encode(CASES["dense sign"]), {HEADER: struct.pack("<f", 2.0**121)})
    assert set(decode(data, CASES["dense sign"]).message.values_nd[0].tolist()) == {2.0**121, -(2.0**121)}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    data = encode(CASES["dense float32"])
    with pytest.raises(NotFiniteError):
        decode(altered(data, {HEADER + 4: struct.pack("<f", bad)}), CASES["dense float32"])
    data = encode(CASES["dense float16"])
    with pytest.raises(NotFiniteError):
        decode(altered(data, {HEADER + 4: struct.pack("<e", bad)}), CASES["dense float16"])
    for name in ("dense int8", "dense sign"):
        with pytest.raises(NotFiniteError):
            decode(altered(encode(CASES[name]), {HEADER: struct.pack("<f", bad)}), CASES[name])


def test_the_reserved_item_is_no_value_where_nothing_is_inline() -> None:
    with pytest.raises(NotFiniteError):
        decode(altered(encode(CASES["bitmap"]), {HEADER + 2: b"\xff" * 4}), CASES["bitmap"])


@pytest.mark.parametrize("name", ["echo and bitmap", "delta", "packed delta bitmap"])
def test_a_reference_must_be_the_one_that_was_meant(name: str) -> None:
    case = CASES[name]
    assert case.reference is not None
    data = encode(case)
    with pytest.raises(UnknownReferenceError, match="known here: none"):
        wire.decode(data, case.address)
    other_round = wire.Reference(case.reference.round + 1, case.reference.packed)
    with pytest.raises(UnknownReferenceError, match=f"known here: {other_round.round};"):
        wire.decode(data, case.address, known=[other_round])
    same_round = wire.Reference(case.reference.round, case.reference.packed ^ 3)
    with pytest.raises(UnknownReferenceError, match="not the one known here"):
        wire.decode(data, case.address, known=[same_round])
    wire.decode(data, case.address, known=[other_round, case.reference])


def test_a_lost_upload_desynchronises_nobody() -> None:
    """Round 5's upload is lost: the server still echoes round 4, and a client that kept it understands."""
    kept = reference(10, 1, 4, round=4)
    reply = build(10, {0: 1.0, 1: 2.0, 4: 3.0}, mask(10, 1, 4), direction="down", reference=kept, confirmed=4)
    data = encode(reply)
    lost = reference(10, 2, 3, round=5)
    decoded = wire.decode(data, reply.address, known=[lost, kept])
    assert decoded.confirmed == 4
    assert torch.equal(decoded.message.values_nd, reply.message.values_nd)
    with pytest.raises(UnknownReferenceError):
        wire.decode(data, reply.address, known=[lost])
