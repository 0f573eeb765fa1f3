"""Small messages whose bytes are written down in test_wire_golden.py, and what was asked of the encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpurin.core.bits import pack_bits
from fedpurin.messages import Message
from fedpurin.wire import Address, Reference

FINGERPRINT = bytes.fromhex("00112233445566aa")


@dataclass(frozen=True)
class Case:
    message: Message
    address: Address
    values: str = "float32"
    pack: bool = False
    reference: Reference | None = None
    confirmed: int = 0

    @property
    def known(self) -> list[Reference]:
        return [self.reference] if self.reference else []


def mask(d: int, *positions: int) -> Tensor:
    bits = torch.zeros(1, d, dtype=torch.bool)
    bits[0, list(positions)] = True
    return bits


def build(
    d: int,
    at: dict[int, float],
    critical: Tensor | None = None,
    *,
    direction: str = "up",
    dense: bool = False,
    **options: object,
) -> Case:
    """A message with these values at these positions; dense: the zeros travel too."""
    row = torch.zeros(1, d)
    for position, value in at.items():
        row[0, position] = value
    support = None if dense else mask(d, *at)
    address = Address(FINGERPRINT, d, round=5, client=7, direction=direction)  # type: ignore[arg-type]
    return Case(Message(row, critical, support), address, **options)  # type: ignore[arg-type]


def reference(d: int, *positions: int, round: int = 4) -> Reference:
    return Reference(round, pack_bits(mask(d, *positions)[0]))


SPARSE = (3, 40, 41, 90)
DENSE_HOLES = tuple(j for j in range(100) if j not in SPARSE)
# Squares modulo a prime: zstd finds nothing in them, but every second position changed is a pattern.
IRREGULAR = tuple(j for j in range(800) if j * j % 809 % 2)
ALTERED = tuple(j for j in range(800) if (j in IRREGULAR) != (j % 2 == 0))

CASES = {
    "dense float32": build(3, {0: 1.0, 1: -2.5, 2: 0.0}, dense=True),
    "dense float16": build(3, {0: 1.0, 1: -2.5, 2: 0.1}, dense=True, values="float16"),
    "dense bfloat16": build(3, {0: 1.0, 1: -2.5, 2: 0.1}, dense=True, values="bfloat16"),
    "dense int8": build(3, {0: 254.0, 1: -5.0, 2: 7.0}, dense=True, values="int8"),
    "dense sign": build(
        9, dict(enumerate([1.0, -2.0, 3.0, -4.0, 0.0, 5.0, -6.0, 7.0, -8.0])), dense=True, values="sign"
    ),
    "signs of a few": build(10, {1: 1.0, 4: -2.0, 9: -3.0}, values="sign"),
    "bitmap": build(10, {1: 1.0, 4: 2.0, 9: -3.0}, mask(10, 1, 4, 9)),
    "gaps": build(100, dict.fromkeys(SPARSE, 1.0), mask(100, *SPARSE)),
    "holes, values not sent": build(100, {SPARSE[0]: 1.0}, mask(100, *DENSE_HOLES), direction="down"),
    "empty": build(9, {}, mask(9)),
    "all": build(2, {0: 1.0, 1: 2.0}, mask(2, 0, 1)),
    "inline mask": build(9, dict.fromkeys(range(8), -1.0), mask(9, *range(8)), values="int8"),
    "inline support": build(
        17,
        dict.fromkeys(range(16), 2.0),
        mask(17, 0, 1),
        direction="down",
        values="int8",
        reference=reference(17, 0, 1),
    ),
    "critical beside all values": build(4, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, mask(4, 1, 2), dense=True),
    "echo and bitmap": build(
        10,
        {0: 9.0, 1: 1.0, 4: 2.0, 7: 8.0},
        mask(10, 1, 4),
        direction="down",
        reference=reference(10, 1, 4, round=3),
        confirmed=3,
    ),
    "delta": build(
        100,
        dict.fromkeys(range(1, 100, 2), 1.0),
        mask(100, *range(1, 100, 2)),
        values="int8",
        reference=reference(100, *range(1, 96, 2), 50),
    ),
    "packed bitmap and values": build(
        800, dict.fromkeys(range(0, 800, 2), 1.0), mask(800, *range(0, 800, 2)), pack=True
    ),
    "packed support and signs": build(800, dict.fromkeys(range(0, 800, 2), -1.0), pack=True, values="sign"),
    "packed delta bitmap": build(
        800,
        dict.fromkeys(ALTERED, 1.0),
        mask(800, *ALTERED),
        pack=True,
        values="float16",
        reference=reference(800, *IRREGULAR),
    ),
}
