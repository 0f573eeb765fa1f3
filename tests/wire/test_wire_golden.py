"""The format, byte for byte. If one of these changes, the version number must change too.

Each message reads: header in its groups of fields, then critical section, outside section, values.
"""

from __future__ import annotations

import pytest
import spec_decoder
import torch
from decoded import decoded_values
from golden_cases import CASES, Case

from fedpurin import wire
from fedpurin.core.bits import unpack_bits

# magic, version, direction, codings, type, flags, 0; client 7, round 5, confirmed, reference, proof;
# fingerprint; d, k, kept, three section lengths; checksum
GOLDEN = {
    "dense float32": """
        4650524e 01 00 00 02 01 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  03000000 00000000 03000000 00000000 00000000 0c000000  b63d2010
        0000803f 000020c0 00000000""",  # 1, -2.5, 0
    "dense float16": """
        4650524e 01 00 00 02 02 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  03000000 00000000 03000000 00000000 00000000 06000000  71e15c74
        003c 00c1 662e""",
    "dense bfloat16": """
        4650524e 01 00 00 02 03 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  03000000 00000000 03000000 00000000 00000000 06000000  fc8eeaf3
        803f 20c0 cd3d""",
    # scale 254 / 127 = 2; 254, -5, 7 are 127, -2.5, 3.5 times that; ties go to -2 and 4
    "dense int8": """
        4650524e 01 00 00 02 04 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  03000000 00000000 03000000 00000000 00000000 07000000  fedadfbf
        00000040  7f fe 04""",
    # scale (1 + 2 + 3 + 4 + 0 + 5 + 6 + 7 + 8) / 9 = 4; below zero are 1, 3, 6, 8: 0b01001010, 0b00000001
    "dense sign": """
        4650524e 01 00 00 02 05 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  09000000 00000000 09000000 00000000 00000000 06000000  cebfc6ec
        00008040  4a 01""",
    # the support alone, in the outside section: 1, 4, 9; scale 2; the second and the third below zero: 0b110
    "signs of a few": """
        4650524e 01 00 00 04 05 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  0a000000 00000000 03000000 00000000 02000000 05000000  714e7a1f
        12 02
        00000040  06""",
    # bits 1, 4, 9: 0b00010010, 0b00000010
    "bitmap": """
        4650524e 01 00 04 01 01 08 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  0a000000 03000000 03000000 02000000 00000000 0c000000  6d96cdba
        12 02
        0000803f 00000040 000040c0""",
    # b = 3; 4 gaps 3, 36, 0, 48; low bits 3, 4, 0, 0 = 0b000_000_100_011; unary 0, 4, 0, 6 zeros before ones
    "gaps": """
        4650524e 01 00 05 01 01 08 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  64000000 04000000 04000000 09000000 00000000 10000000  77f81098
        03 04000000 2300 6120
        0000803f 0000803f 0000803f 0000803f""",
    # the same gap list names the 4 positions that are not critical; of those, the first carries a value
    "holes, values not sent": """
        4650524e 01 01 06 04 01 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  64000000 60000000 01000000 09000000 01000000 04000000  273862c6
        03 04000000 2300 6120
        01
        0000803f""",
    "empty": """
        4650524e 01 00 01 01 01 00 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  09000000 00000000 00000000 00000000 00000000 00000000  84156466""",
    "all": """
        4650524e 01 00 02 01 01 08 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  02000000 02000000 02000000 00000000 00000000 08000000  bc85da8d
        0000803f 00000040""",
    # 8 of 9: a bitmap would take 2 bytes, the mark 0x80 at position 8 takes 1
    "inline mask": """
        4650524e 01 00 07 01 04 08 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  09000000 08000000 08000000 00000000 00000000 0d000000  c988d172
        0402013c  81 81 81 81 81 81 81 81 80""",
    # the mask is echoed (reference round 4, proof); position 16 is marked as left out
    "inline support": """
        4650524e 01 01 03 07 04 08 0000  07000000 05000000 00000000 04000000 4b6707fd
        00112233445566aa  11000000 02000000 10000000 00000000 00000000 15000000  7b2a6866
        0402813c  7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 7f 80""",
    "critical beside all values": """
        4650524e 01 00 04 02 01 08 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  04000000 02000000 04000000 01000000 00000000 10000000  746f6023
        06
        0000803f 00000040 00004040 00008040""",
    # outside are 0 2 3 5 6 7 8 9; of these numbers 0 and 5 (positions 0 and 7) carry a value: 0b00100001
    "echo and bitmap": """
        4650524e 01 01 03 04 01 08 0000  07000000 05000000 03000000 03000000 2c622d39
        00112233445566aa  0a000000 02000000 04000000 00000000 01000000 10000000  9e70be72
        21
        00001041 0000803f 00000040 00000041""",
    # changed: 50, 97, 99; gaps 50, 46, 1 with b = 4: low bits 2, 14, 1; unary 3, 2, 0 zeros
    "delta": """
        4650524e 01 00 08 01 04 08 0000  07000000 05000000 00000000 04000000 e5f10464
        00112233445566aa  64000000 32000000 32000000 08000000 00000000 36000000  fcb0fb6e
        04 03000000 e201 c8
        0402013c  7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f
                  7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f 7f7f7f7f7f""",
    "packed bitmap and values": """
        4650524e 01 00 04 01 01 0d 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  20030000 90010000 90010000 11000000 00000000 1a000000  b5e7e5a1
        28b52ffd206445000010555501003f012c
        28b52ffd604005850000200000803f0310008caa30aa77638505""",
    # scales 1 and 1, then 50 bytes 0xff
    "packed support and signs": """
        4650524e 01 00 00 04 05 06 0000  07000000 05000000 00000000 00000000 00000000
        00112233445566aa  20030000 00000000 90010000 00000000 11000000 18000000  a381f052
        28b52ffd206445000010555501003f012c
        28b52ffd203a7d0000480000803f0000803fff010046e008""",
    "packed delta bitmap": """
        4650524e 01 00 09 01 02 0d 0000  07000000 05000000 00000000 04000000 3822e9cc
        00112233445566aa  20030000 95010000 95010000 11000000 00000000 17000000  1d794dc4
        28b52ffd206445000010555501003f012c
        28b52ffd602a026d00001800003c0200914015902ac002""",
}


def encode(case: Case) -> wire.Encoded:
    return wire.encode(
        case.message,
        case.address,
        values=case.values,
        pack=case.pack,
        reference=case.reference,
        confirmed=case.confirmed,
    )


def test_every_case_has_golden_bytes() -> None:
    assert GOLDEN.keys() == CASES.keys()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.pack])
def test_encoding_gives_the_golden_bytes(name: str) -> None:
    assert encode(CASES[name]).data.hex() == bytes.fromhex(GOLDEN[name]).hex()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.pack])
def test_packing_is_used_where_it_pays(name: str) -> None:
    # Another release of zstd may pack differently, so the bytes are not compared.
    assert wire.peek(encode(CASES[name]).data).mask_encoding.endswith(".zst")


@pytest.mark.parametrize("name", CASES)
def test_golden_bytes_decode_to_the_message(name: str) -> None:
    case = CASES[name]
    decoded = wire.decode(bytes.fromhex(GOLDEN[name]), case.address, known=case.known)
    assert torch.equal(decoded.message.values_nd, decoded_values(case.message, case.values))
    assert same_bits(decoded.message.critical_nd, case.message.critical_nd)
    assert same_bits(decoded.message.support_nd, case.message.support_nd, case.address.d)
    assert decoded.confirmed == case.confirmed
    assert decoded.value_type == case.values
    if decoded.packed is not None:
        assert same_bits(unpack_bits(decoded.packed, case.address.d)[None], case.message.critical_nd)


def same_bits(found: torch.Tensor | None, wanted: torch.Tensor | None, d: int = 0) -> bool:
    """With d, None stands for all d positions."""
    if d:
        found, wanted = (torch.ones(1, d, dtype=torch.bool) if x is None else x for x in (found, wanted))
    return found is None if wanted is None else found is not None and torch.equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_a_decoder_written_from_the_specification_alone_agrees(name: str) -> None:
    case = CASES[name]
    bitmap = bytes(case.reference.packed.tolist()) if case.reference else b""
    plain = spec_decoder.decode(bytes.fromhex(GOLDEN[name]), bitmap)
    expected = decoded_values(case.message, case.values)[0]
    support = range(case.address.d)
    if case.message.support_nd is not None:
        support = case.message.support_nd[0].nonzero().flatten().tolist()
    assert plain.values == {j: float(expected[j]) for j in support}
    critical = case.message.critical_nd
    assert plain.critical == (None if critical is None else critical[0].nonzero().flatten().tolist())
    assert plain.fingerprint == case.address.fingerprint
    assert plain.fields["round"] == case.address.round
    assert plain.fields["client"] == case.address.client
    assert plain.fields["confirmed"] == case.confirmed


def test_peek_tells_what_a_message_is_without_decoding_it() -> None:
    head = wire.peek(bytes.fromhex(GOLDEN["echo and bitmap"]))
    assert (head.round, head.client, head.direction, head.d) == (5, 7, "down", 10)
    assert (head.confirmed, head.reference, head.critical, head.kept) == (3, 3, 2, 4)
    assert (head.mask_encoding, head.value_type) == ("echo+bitmap", "float32")
