"""What every type of values answers.

For a value travels an item, an unsigned integer. Types with scales have one more float32 for each block of
256 kept values; blocks count kept values, not positions, so that a value decodes to the same number however
the mask is coded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedpurin.errors import CorruptError, NotFiniteError

Floats = npt.NDArray[np.float32]
Unsigned = npt.NDArray[np.unsignedinteger]
Bytes = npt.NDArray[np.uint8]

BLOCK = 256
MAX_SCALE = np.float32(2.0**121)  # 127 times this is still finite


@dataclass(frozen=True)
class Codes:
    """What travels for the kept values, in ascending order of position."""

    items: Unsigned  # [kept]
    scales: Floats | None  # [ceil(kept / 256)]; None for a type without scales


class ValueType:
    """Derive from it, set what is listed here, and write `to_codes` and `from_codes`.

    A decoder meets any bytes: whatever stands for no finite number must be refused there with a
    NotFiniteError or a CorruptError. An encoder refuses what its type cannot hold.
    """

    number: ClassVar[int]  # in the header of a message; never given to another type
    item: ClassVar[str]  # numpy's name of an item
    bits: ClassVar[int]  # of a value, scales left aside
    reserved: ClassVar[int | None] = None  # the item that says "no value here"; None: none can be spared
    scaled: ClassVar[bool] = False
    exact: ClassVar[bool] = False  # every value decodes to its own bits
    updates_only: ClassVar[bool] = False  # makes sense for changes of weights, not for weights

    def to_codes(self, values: Floats) -> Codes:
        """Round float32 [kept] to the type; NaN, Inf and overflow are errors here, never at the receiver."""
        raise NotImplementedError

    def from_codes(self, codes: Codes) -> Floats:
        """float32 [kept]; raises if a code or scale stands for no finite number."""
        raise NotImplementedError

    @property
    def itemsize(self) -> int:
        return np.dtype(self.item).itemsize

    def items_size(self, entries: int) -> int:
        """Bytes of so many items."""
        return entries * self.itemsize

    def pack_items(self, items: Unsigned) -> Unsigned:
        """The items as they are written, where that is not one after the other."""
        return items

    def unpack_items(self, written: Unsigned, entries: int) -> Unsigned:
        """The inverse of `pack_items`; raises CorruptError where unused bits are not 0."""
        return written


class HalfFloat(ValueType):
    """A float of 16 bits that torch has too."""

    item, bits, reserved = "<u2", 16, 0xFFFF  # all ones is a NaN in both
    torch_name: ClassVar[str]
    overflow: ClassVar[float]  # the smallest number that rounds to infinity: half a step above the largest

    def to_codes(self, values: Floats) -> Codes:
        import torch

        if checked_largest(values) >= self.overflow:
            raise too_large(values, self.torch_name)
        rounded = torch.from_numpy(values).to(getattr(torch, self.torch_name))
        return Codes(rounded.view(torch.int16).numpy().astype("<i2", copy=False).view("<u2"), None)

    def from_codes(self, codes: Codes) -> Floats:
        import torch

        bits = codes.items.astype(np.uint16, copy=False).view(np.int16)
        values: Floats = torch.from_numpy(bits).view(getattr(torch, self.torch_name)).float().numpy()
        checked_largest(values)
        return values


class Scaled(ValueType):
    """A small item for each value, and a scale for each block of 256."""

    item, scaled = "<u1", True

    @staticmethod
    def blocks(values: npt.NDArray[Any]) -> Floats:
        """A copy [blocks, 256], the last one filled up with zeros."""
        blocks = np.zeros((-(-len(values) // BLOCK), BLOCK), np.float32)
        blocks.reshape(-1)[: len(values)] = values
        return blocks

    @classmethod
    def check_sent(cls, scales: Floats, values: Floats) -> None:
        """Scales that were made of these values."""
        if not np.isfinite(scales).all():
            raise not_finite(values)
        if (scales > MAX_SCALE).any():
            raise too_large(values, cls.__name__.lower())

    @classmethod
    def received_scales(cls, codes: Codes) -> Floats:
        """Scales as they came over the wire, checked."""
        assert codes.scales is not None
        if not np.isfinite(codes.scales).all():
            raise not_finite(codes.scales)
        if (codes.scales > MAX_SCALE).any() or np.signbit(codes.scales).any():
            raise CorruptError(f"a scale of {cls.__name__.lower()} is negative or above 2^121")
        return codes.scales


def checked_largest(values: Floats) -> float:
    """max |x|, where all are finite."""
    largest = float(np.maximum(values.max(), -values.min())) if len(values) else 0.0
    if not np.isfinite(largest):
        raise not_finite(values)
    return largest


def not_finite(values: Floats) -> NotFiniteError:
    place = int(np.flatnonzero(~np.isfinite(values))[0])
    return NotFiniteError(
        f"value {place} of {len(values)} is {values[place]}; training diverged, use a lower learning rate"
    )


def too_large(values: Floats, name: str) -> NotFiniteError:
    worst = values[int(np.abs(values).argmax())]
    return NotFiniteError(
        f"{worst} is too large for {name}; send bfloat16 or float32, or use a lower learning rate"
    )
