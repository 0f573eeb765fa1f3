"""The states of all clients in one shared-memory block: a matrix per tensor, a row per client.

The block is an anonymous memory file whose descriptor worker processes inherit, so nothing is left
behind however they end.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGN = 64


@dataclass(frozen=True)
class Spec:
    """Name, shape and type of every tensor in one client's state."""

    entries: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Spec:
        return cls(tuple((k, tuple(v.shape), str(v.dtype).removeprefix("torch.")) for k, v in state.items()))

    def to_json(self) -> str:
        return json.dumps(self.entries)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        return cls(tuple((name, tuple(shape), dtype) for name, shape, dtype in json.loads(text)))


class StateTable:
    """rows[name] is [n, ...] in shared memory."""

    def __init__(self, spec: Spec, n: int, descriptor: int | None = None) -> None:
        self.spec, self.n = spec, n
        offsets, at = [], 0
        for _, shape, dtype in spec.entries:
            offsets.append(at)
            size = math.prod(shape) * n * getattr(torch, dtype).itemsize
            at += -(-size // ALIGN) * ALIGN
        size = max(at, ALIGN)
        self.descriptor = _memory_file(size) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, size)
        self.rows: dict[str, Tensor] = {}
        for (name, shape, dtype), offset in zip(spec.entries, offsets, strict=True):
            count = math.prod(shape) * n
            flat = (
                torch.frombuffer(self._memory, dtype=getattr(torch, dtype), count=count, offset=offset)
                if count
                else torch.empty(0, dtype=getattr(torch, dtype))
            )
            self.rows[name] = flat.view(n, *shape)

    def close(self) -> None:
        """Give the memory back. Whoever still holds a tensor of a row keeps the pages alive, not the file."""
        self.rows = {}
        with contextlib.suppress(BufferError):
            self._memory.close()
        os.close(self.descriptor)

    def read(self, i: int) -> dict[str, Tensor]:
        """A copy of one client's state."""
        return {name: rows[i].clone() for name, rows in self.rows.items()}

    def write(self, i: int, state: dict[str, Tensor]) -> None:
        for name, rows in self.rows.items():
            rows[i].copy_(state[name])

    def copy_row(self, i: int, other: StateTable, j: int) -> None:
        for name, rows in self.rows.items():
            rows[i].copy_(other.rows[name][j])

    def restore(self, saved: dict[str, Tensor]) -> None:
        for name, rows in self.rows.items():
            rows.copy_(saved[name])


def _memory_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedpurin", 0)
    else:  # no anonymous memory files on this system: a temporary file that has no name any more
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(descriptor, size)
    return descriptor
