"""One message row taken apart, with the index arrays that several sections need computed once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpurin.messages import Message

Bits = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


class Parts:
    def __init__(self, message: Message, d: int) -> None:
        """Check what only a programming error can get wrong: shapes, types, the all-or-nothing rule."""
        if message.values_nd.shape != (1, d) or message.values_nd.dtype != torch.float32:
            given = f"{message.values_nd.dtype} {list(message.values_nd.shape)}"
            raise ValueError(f"values must be float32 [1, {d}], not {given}")
        self.d = d
        self.values: npt.NDArray[np.float32] = message.values_nd.detach().cpu().numpy().reshape(d)
        self.critical = _bits(message.critical_nd, d)
        self.support = _bits(message.support_nd, d)
        self.critical_count = 0 if self.critical is None else int(np.count_nonzero(self.critical))
        self.kept = d if self.support is None else int(np.count_nonzero(self.support))
        inside = self._kept_inside()
        if inside not in (0, self.critical_count):
            raise ValueError(
                f"{inside} of {self.critical_count} critical values travel; it must be all of them or none"
            )
        self.travels = inside > 0  # the critical values do
        self.outside_count = d - self.critical_count
        self.kept_outside = self.kept - inside
        self.only_critical_travels = self.travels and self.kept_outside == 0  # kept set = critical set

    def _kept_inside(self) -> int:
        if self.critical is None or self.support is None:
            return self.critical_count
        return int(np.count_nonzero(self.critical & self.support))

    @cached_property
    def kept_positions(self) -> Positions:
        return np.arange(self.d) if self.support is None else np.flatnonzero(self.support)

    @cached_property
    def kept_values(self) -> npt.NDArray[np.float32]:
        return self.values if self.kept == self.d else self.values.take(self.kept_positions)

    @cached_property
    def support_outside(self) -> Bits:
        """The support restricted to the positions outside the critical set, in order."""
        assert self.support is not None  # where all values travel nobody asks
        if self.critical is None or self.critical_count == 0:
            return self.support
        return self.support.take(np.flatnonzero(~self.critical))


def _bits(mask: Tensor | None, d: int) -> Bits | None:
    """bool [1, d] tensor -> bool [d] array."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape != (1, d):
        raise ValueError(f"a mask for {d} parameters must be a bool tensor [1, {d}]")
    return mask.detach().cpu().numpy().reshape(d)
