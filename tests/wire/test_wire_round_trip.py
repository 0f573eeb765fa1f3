"""What goes in comes out, at a size that can be relied on."""

from __future__ import annotations

import math

import pytest
import torch
from decoded import decoded_values
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.messages import Message

FINGERPRINT = b"layout01"
DENSE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "sign": 1 / 8}


def address(d: int, direction: str = "up", round: int = 5) -> wire.Address:
    return wire.Address(FINGERPRINT, d, round, client=3, direction=direction)  # type: ignore[arg-type]


def random_mask(d: int, share: float, seed: int) -> Tensor:
    return torch.rand(1, d, generator=torch.Generator().manual_seed(seed)) < share


def random_values(d: int, seed: int) -> Tensor:
    """Normal numbers of several magnitudes, with some zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    magnitude = 10.0 ** torch.randint(-6, 4, (1, d), generator=generator)
    values = torch.randn(1, d, generator=generator) * magnitude
    return torch.where(torch.rand(1, d, generator=generator) < 0.05, 0.0, values)


def dense_size(d: int, value_type: str) -> int:
    scales = 4 * math.ceil(d / 256) if value_type in ("int8", "sign") else 0
    return wire.HEADER_BYTES + math.ceil(d * DENSE_BYTES[value_type]) + scales


def most_bytes(d: int, kept: int, value_type: str) -> int:
    """A dense message; of sign, which cannot mark positions, what is kept and a bit for each position."""
    if value_type != "sign":
        return dense_size(d, value_type)
    return dense_size(kept, value_type) + (math.ceil(d / 8) if 0 < kept < d else 0)


def as_bits(mask: Tensor | None, d: int) -> Tensor:
    return torch.ones(1, d, dtype=torch.bool) if mask is None else mask


def bit_equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def check_round_trip(
    message: Message, to: wire.Address, value_type: str, pack: bool, reference: wire.Reference | None = None
) -> wire.Encoded:
    encoded = wire.encode(message, to, values=value_type, pack=pack, reference=reference, confirmed=2)
    assert encoded.header + encoded.mask + encoded.values == len(encoded.data)
    assert len(encoded.data) <= wire.longest(to.d, value_type)
    decoded = wire.decode(encoded.data, to, known=[reference] if reference else [])
    assert bit_equal(decoded.message.values_nd, decoded_values(message, value_type))
    assert torch.equal(as_bits(decoded.message.support_nd, to.d), as_bits(message.support_nd, to.d))
    assert encoded.kept == int(as_bits(message.support_nd, to.d).sum())
    if message.critical_nd is None:
        assert decoded.message.critical_nd is None
        assert decoded.packed is None
    else:
        assert decoded.message.critical_nd is not None
        assert torch.equal(decoded.message.critical_nd, message.critical_nd)
        assert decoded.packed is not None
        assert torch.equal(decoded.packed, pack_bits(message.critical_nd[0]))
    assert decoded.confirmed == 2
    assert decoded.value_type == value_type
    return encoded


sizes = st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 1000, 5003]))
shares = st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.3, 0.49, 0.5, 0.7, 0.95, 0.99, 0.999, 1.0])
seeds = st.integers(0, 2**32)
types = st.sampled_from(wire.VALUE_TYPES)


@settings(deadline=None, max_examples=150)
@given(
    d=sizes,
    share=shares,
    seed=seeds,
    value_type=types,
    pack=st.booleans(),
    churn=st.one_of(st.none(), shares),
)
def test_a_sparse_upload_comes_back_and_is_never_larger_than_a_dense_one(
    d: int, share: float, seed: int, value_type: str, pack: bool, churn: float | None
) -> None:
    critical = random_mask(d, share, seed)
    message = Message(torch.where(critical, random_values(d, seed), 0.0), critical, critical)
    reference = None
    if churn is not None:
        reference = wire.Reference(4, pack_bits(critical ^ random_mask(d, churn, seed + 1))[0])
    encoded = check_round_trip(message, address(d), value_type, pack, reference)
    assert len(encoded.data) <= most_bytes(d, encoded.kept, value_type)


@settings(deadline=None, max_examples=150)
@given(
    d=sizes, share=shares, outside=shares, seed=seeds, value_type=types,
    pack=st.booleans(), inside=st.booleans(), echo=st.booleans(),
)  # fmt: skip
def test_a_reply_comes_back_with_any_support_outside_the_mask(
    d: int, share: float, outside: float, seed: int, value_type: str, pack: bool, inside: bool, echo: bool
) -> None:
    critical = random_mask(d, share, seed)
    support = random_mask(d, outside, seed + 1) & ~critical | (critical & inside)
    message = Message(torch.where(support, random_values(d, seed), 0.0), critical, support)
    reference = wire.Reference(5, pack_bits(critical)[0]) if echo else None
    encoded = check_round_trip(message, address(d, "down"), value_type, pack, reference)
    if echo:  # the mask is free, so the reply too fits into a dense message
        assert len(encoded.data) <= most_bytes(d, encoded.kept, value_type)


@settings(deadline=None, max_examples=60)
@given(d=sizes, seed=seeds, value_type=types, pack=st.booleans(), share=st.one_of(st.none(), shares))
def test_methods_without_masks_send_values_alone(
    d: int, seed: int, value_type: str, pack: bool, share: float | None
) -> None:
    support = None if share is None else random_mask(d, share, seed)
    values = random_values(d, seed)
    message = Message(values if support is None else torch.where(support, values, 0.0), None, support)
    encoded = check_round_trip(message, address(d), value_type, pack)
    assert len(encoded.data) <= most_bytes(d, encoded.kept, value_type)
    if support is None:
        assert (encoded.mask, encoded.mask_encoding) == (0, "none")
        assert pack or len(encoded.data) == dense_size(d, value_type)


@settings(deadline=None, max_examples=60)
@given(d=sizes, share=shares, seed=seeds, value_type=types)
def test_a_mask_beside_all_values_costs_at_most_one_bit_per_parameter(
    d: int, share: float, seed: int, value_type: str
) -> None:
    message = Message(random_values(d, seed), random_mask(d, share, seed), None)
    encoded = check_round_trip(message, address(d), value_type, pack=False)
    assert encoded.mask <= math.ceil(d / 8)


D = 10_000


def upload(share: float, *, seed: int = 0) -> Message:
    critical = random_mask(D, share, seed)
    return Message(torch.where(critical, 1.0, 0.0), critical, critical)


@pytest.mark.parametrize(("share", "name"), [(0.5, "bitmap"), (0.05, "gaps"), (0.95, "holes")])
def test_the_density_decides_how_a_mask_is_coded(share: float, name: str) -> None:
    assert wire.encode(upload(share), address(D)).mask_encoding == name


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.1, 0.2])
def test_gap_coding_stays_within_six_percent_of_the_entropy(share: float) -> None:
    # Low bits come in whole numbers, which costs a geometric distribution up to about 4 %; then 5 bytes.
    d = 200_000
    critical = random_mask(d, share, 1)
    encoded = wire.encode(Message(torch.zeros(1, d), critical, critical), address(d))
    p = int(critical.sum()) / d
    entropy = -d * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8
    assert encoded.mask < 1.06 * entropy


def test_packing_of_real_looking_values_is_lossless_and_smaller() -> None:
    weights = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0)) * 0.05
    plain = wire.encode(Message(weights), address(50_000))
    packed = check_round_trip(Message(weights), address(50_000), "float32", pack=True)
    # The sign and exponent byte of N(0, 0.05) has about 3 bits of entropy: some 15 % can be saved.
    assert packed.values < 0.9 * plain.values


@pytest.mark.parametrize("churn", [0.001, 0.01, 0.1])
def test_a_mask_like_the_one_before_costs_only_the_difference(churn: float) -> None:
    message = upload(0.5)
    assert message.critical_nd is not None
    before = message.critical_nd ^ random_mask(D, churn, 9)
    encoded = wire.encode(message, address(D), reference=wire.Reference(4, pack_bits(before)[0]))
    assert encoded.mask_encoding == "delta"
    changed = int((before ^ message.critical_nd).sum())
    assert encoded.mask < 5 + changed * (math.log2(1 / churn) + 2) / 8 + 2


@pytest.mark.parametrize("inside", [True, False])
def test_a_few_values_left_out_of_an_int8_reply_are_marked_in_place(inside: bool) -> None:
    critical = random_mask(D, 0.5, 0)
    support = torch.ones(1, D, dtype=torch.bool) if inside else ~critical
    support[0, (~critical)[0].nonzero()[[5, 700, 4000]]] = False
    message = Message(torch.where(support, random_values(D, 0), 0.0), critical, support)
    reference = wire.Reference(5, pack_bits(critical)[0])
    encoded = check_round_trip(message, address(D, "down"), "int8", False, reference)
    assert (encoded.mask_encoding, encoded.mask) == ("echo+inline", 0)


@pytest.mark.parametrize("inside", [True, False])
def test_a_few_values_left_out_of_a_reply_of_signs_are_listed(inside: bool) -> None:
    critical = random_mask(D, 0.5, 0)
    support = torch.ones(1, D, dtype=torch.bool) if inside else ~critical
    support[0, (~critical)[0].nonzero()[[5, 700, 4000]]] = False
    message = Message(torch.where(support, random_values(D, 0), 0.0), critical, support)
    reference = wire.Reference(5, pack_bits(critical)[0])
    encoded = check_round_trip(message, address(D, "down"), "sign", False, reference)
    assert encoded.mask_encoding == "echo+holes"
    assert encoded.values == math.ceil(encoded.kept / 8) + 4 * math.ceil(encoded.kept / 256)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("left_out", [0, 1, 300])
@pytest.mark.parametrize("kept", [1, 7, 8, 9, 255, 256, 257, 264, 512, 2048])
def test_signs_of_any_number_of_values_come_back(kept: int, left_out: int, pack: bool) -> None:
    d = kept + left_out
    support = (torch.arange(d) >= left_out)[None]
    values = random_values(d, kept)
    values[0, ::5] = -0.0
    for row in (values, torch.zeros(1, d), -torch.ones(1, d)):
        message = Message(torch.where(support, row, 0.0), None, support)
        encoded = check_round_trip(message, address(d), "sign", pack)
        assert pack or encoded.values == math.ceil(kept / 8) + 4 * math.ceil(kept / 256)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("d", [1, 8, 300])
def test_no_signs_at_all_come_back(d: int, pack: bool) -> None:
    nothing = torch.zeros(1, d, dtype=torch.bool)
    for critical in (None, nothing):
        encoded = check_round_trip(Message(torch.zeros(1, d), critical, nothing), address(d), "sign", pack)
        assert len(encoded.data) == wire.HEADER_BYTES


def test_an_unrelated_reference_is_not_used() -> None:
    reference = wire.Reference(4, pack_bits(random_mask(D, 0.5, 77))[0])
    with_reference = wire.encode(upload(0.5), address(D), reference=reference)
    assert with_reference.data == wire.encode(upload(0.5), address(D)).data


def test_encoding_the_same_message_twice_gives_the_same_bytes() -> None:
    for pack in (False, True):
        twice = [wire.encode(upload(0.3), address(D), values="int8", pack=pack).data for _ in range(2)]
        assert twice[0] == twice[1]


@pytest.mark.parametrize("value_type", wire.VALUE_TYPES)
def test_the_bytes_do_not_depend_on_the_number_of_threads(value_type: str) -> None:
    d = 200_000  # enough for torch to share the work out
    values = torch.arange(float(d)).reshape(1, d).sin()
    threads = torch.get_num_threads()
    try:
        data = set()
        for count in (1, 2):
            torch.set_num_threads(count)
            data.add(wire.encode(Message(values, values > 0, None), address(d), values=value_type).data)
    finally:
        torch.set_num_threads(threads)
    assert len(data) == 1


def test_memoryview_and_bytearray_decode_like_bytes() -> None:
    encoded = wire.encode(upload(0.5), address(D))
    expected = wire.decode(encoded.data, address(D)).message.values_nd
    for form in (memoryview(encoded.data), bytearray(encoded.data)):
        assert torch.equal(wire.decode(form, address(D)).message.values_nd, expected)


def test_what_was_decoded_may_be_written_to() -> None:
    for message in (Message(torch.ones(1, 4)), upload(0.5)):
        d = message.values_nd.shape[1]
        decoded = wire.decode(wire.encode(message, address(d)).data, address(d))
        decoded.message.values_nd.add_(1)
        assert bool((decoded.message.values_nd >= 1).all())


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message(torch.ones(1, 3)), r"float32 \[1, 4\]"),
        (Message(torch.ones(2, 4)), r"float32 \[1, 4\]"),
        (Message(torch.ones(1, 4, dtype=torch.float64)), "float64"),
        (Message(torch.ones(1, 4), torch.ones(1, 4)), "bool"),
        (
            Message(torch.ones(1, 4), torch.tensor([[1, 1, 0, 0]]) > 0, torch.tensor([[1, 0, 1, 0]]) > 0),
            "1 of 2",
        ),
    ],
)
def test_messages_that_break_the_contract_are_programming_errors(message: Message, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        wire.encode(message, address(4))


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": b"short"}, {"d": 0}, {"d": 2**30}, {"round": -1}, {"client": 2**32}, {"direction": "x"}],
)
def test_an_address_that_the_header_cannot_hold_is_a_programming_error(change: dict[str, object]) -> None:
    good = {"fingerprint": FINGERPRINT, "d": 4, "round": 1, "client": 0, "direction": "up"}
    with pytest.raises(ValueError, match=r"fingerprint|outside|direction"):
        wire.Address(**good | change)  # type: ignore[arg-type]


def test_references_must_fit_the_layout_and_have_a_round() -> None:
    with pytest.raises(ValueError, match="confirmed = -1"):
        wire.encode(upload(0.5), address(D), confirmed=-1)
    with pytest.raises(ValueError, match="round 0"):
        wire.Reference(0, torch.zeros(1, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"uint8 \[1250\]"):
        wire.encode(upload(0.5), address(D), reference=wire.Reference(1, torch.zeros(3, dtype=torch.uint8)))


def test_an_unknown_value_type_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"float32, float16, bfloat16, int8, sign$"):
        wire.encode(Message(torch.ones(1, 4)), address(4), values="int4")
