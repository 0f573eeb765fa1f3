"""Value types: what rounding does, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from decoded import decoded_values
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpurin import wire
from fedpurin.errors import NotFiniteError
from fedpurin.messages import Message

FLOAT32_MAX = torch.finfo(torch.float32).max
LOSSY = [name for name in wire.VALUE_TYPES if name != "float32"]
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def send(values: torch.Tensor, value_type: str) -> torch.Tensor:
    to = wire.Address(b"layout01", len(values), 1, 0, "up")
    data = wire.encode(Message(values[None]), to, values=value_type).data
    return wire.decode(data, to).message.values_nd[0]


@settings(deadline=None, max_examples=100)
@given(st.lists(floats, min_size=1, max_size=600))
def test_float32_is_exact_to_the_bit(numbers: list[float]) -> None:
    values = torch.tensor(numbers)
    assert torch.equal(send(values, "float32").view(torch.int32), values.view(torch.int32))


@pytest.mark.parametrize("value_type", LOSSY)
@settings(deadline=None, max_examples=60)
@given(numbers=st.lists(st.floats(-60000, 60000, width=32), min_size=1, max_size=600))
def test_what_quantize_says_is_what_arrives(value_type: str, numbers: list[float]) -> None:
    values = torch.tensor(numbers)
    got = send(values, value_type)
    assert torch.equal(got.view(torch.int32), wire.quantize(values, value_type).view(torch.int32))


@pytest.mark.parametrize(("value_type", "dtype"), [("float16", torch.float16), ("bfloat16", torch.bfloat16)])
def test_short_floats_are_torchs(value_type: str, dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(wire.quantize(values, value_type), values.to(dtype).float())


@settings(deadline=None, max_examples=60)
@given(st.lists(floats.filter(lambda x: abs(x) < 1e38), min_size=1, max_size=600))
def test_int8_is_within_half_a_step_of_its_block(numbers: list[float]) -> None:
    values = torch.tensor(numbers)
    got = wire.quantize(values, "int8")
    for block, result in zip(values.split(256), got.split(256), strict=True):
        step = block.abs().max().double() / 127
        # 1e-5: x / scale and q * scale are rounded to float32. 1e-43: steps of subnormal numbers.
        assert bool(((result.double() - block.double()).abs() <= step * (0.5 + 1e-5) + 1e-43).all())


def test_int8_rounds_to_nearest_and_ties_to_even() -> None:
    values = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49, -126.6])  # scale 1
    assert wire.quantize(values, "int8").tolist() == [127, 0, 2, 2, 0, -2, 0, -127]


def test_int8_scales_belong_to_blocks_of_256_kept_values() -> None:
    values = torch.cat((torch.full((256,), 1000.0), torch.full((10,), 0.001)))
    got = wire.quantize(values, "int8")
    assert torch.allclose(got, values, rtol=1e-6)


def test_int8_zeros_are_positive_zeros() -> None:
    got = wire.quantize(torch.tensor([1.0, -0.0, -1e-9, 0.0]), "int8")
    assert got[1:].view(torch.int32).tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-44, 1e-38])
def test_int8_survives_blocks_of_zeros_and_of_the_smallest_numbers(size: float) -> None:
    got = wire.quantize(torch.tensor([size, -size, size / 2]), "int8")
    assert bool((got.abs() <= 1.01 * size + 1e-43).all())  # 1e-43: a subnormal scale is coarse


@settings(deadline=None, max_examples=60)
@given(st.lists(floats.filter(lambda x: abs(x) < 2.0**121), min_size=1, max_size=600))
def test_sign_keeps_the_sign_and_the_mean_size_of_its_block(numbers: list[float]) -> None:
    values = torch.tensor(numbers)
    got = wire.quantize(values, "sign")
    for block, result in zip(values.split(256), got.split(256), strict=True):
        mean = math.fsum(abs(x) for x in block.tolist()) / len(block)
        # 2^-24: rounding to float32, a hair more for the sum in float64; 1e-45: subnormal numbers
        assert abs(float(result[0].abs()) - mean) <= 1.001 * 2.0**-24 * mean + 1e-45
        assert bool((result.abs() == result[0].abs()).all())
        assert torch.equal(result < 0, (block < 0) & (result != 0))


def test_sign_by_hand() -> None:
    values = torch.tensor([1.0, -2.0, 0.0, -0.0, -7.0])
    assert wire.quantize(values, "sign").tolist() == [2.0, -2.0, 2.0, 2.0, -2.0]


def test_sign_scales_belong_to_blocks_of_256_kept_values() -> None:
    values = torch.cat((torch.full((256,), -1000.0), torch.full((9,), 0.25), torch.full((1,), -2.75)))
    assert wire.quantize(values, "sign").tolist() == [-1000.0] * 256 + [0.5] * 9 + [-0.5]


@pytest.mark.parametrize("size", [0.0, 1e-45])
def test_sign_of_zeros_and_of_what_is_too_small_for_a_mean_is_positive_zero(size: float) -> None:
    values = torch.zeros(600)
    values[[3, 300]] = -size  # a mean of 256 values that is below half the smallest number
    values[4] = -0.0
    values[512:] = -1.0
    got = send(values, "sign")
    assert got[:512].view(torch.int32).tolist() == [0] * 512
    assert got[512:].tolist() == [-1.0] * 88


def test_sign_of_huge_values_neither_overflows_on_the_way_nor_arrives_too_large() -> None:
    assert send(torch.full((300,), -(2.0**121)), "sign").tolist() == [-(2.0**121)] * 300
    with pytest.raises(NotFiniteError, match="too large for sign; send bfloat16 or float32"):
        send(torch.full((300,), FLOAT32_MAX), "sign")


@pytest.mark.parametrize("value_type", wire.VALUE_TYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_not_sent(value_type: str, bad: float) -> None:
    values = torch.ones(300)
    values[270] = bad
    with pytest.raises(NotFiniteError, match=r"value 270 of 300 is .*learning rate"):
        send(values, value_type)


@pytest.mark.parametrize(
    ("value_type", "largest", "too_large"),
    [
        ("float16", 65519.996, 65520.0),  # halfway between 65504 and what would be 65536
        ("bfloat16", 3.3895e38, FLOAT32_MAX),
        ("int8", 127 * 2.0**121, FLOAT32_MAX),
        ("sign", 2.0**121, FLOAT32_MAX),
    ],
)
def test_overflow_is_an_error_of_the_sender(value_type: str, largest: float, too_large: float) -> None:
    assert bool(torch.isfinite(send(torch.tensor([largest, -largest]), value_type)).all())
    with pytest.raises(NotFiniteError, match=f"too large for {value_type}; send bfloat16 or float32"):
        send(torch.tensor([1.0, -too_large]), value_type)


@pytest.mark.parametrize("value_type", wire.VALUE_TYPES)
def test_decoded_values_of_many_rows_are_those_of_each_row(value_type: str) -> None:
    generator = torch.Generator().manual_seed(0)
    support_nd = torch.rand(3, 700, generator=generator) < 0.6
    values_nd = torch.where(support_nd, torch.randn(3, 700, generator=generator), 0.0)
    message = Message(values_nd, None, support_nd)
    got_nd = decoded_values(message, value_type)
    for i in range(3):
        to = wire.Address(b"layout01", 700, 1, i, "up")
        data = wire.encode(message.row(i), to, values=value_type).data
        assert torch.equal(wire.decode(data, to).message.values_nd[0], got_nd[i])
