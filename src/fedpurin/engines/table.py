"""The states of clients as records: one after the other in a file of the run directory (`runs.rows`).

A worker finds a state by its place in that file, whose descriptor it inherits, and leaves the next one in a
row of shared memory, which is anonymous, so that nothing is left behind however processes end.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedpurin.engines.states import State
from fedpurin.runs.rows import RowFile, check_index, memory_file

ALIGN = 64


@dataclass(frozen=True)
class Spec:
    """Name, shape and type of every tensor in one client's state, in the order of a record."""

    entries: Sequence[tuple[str, Sequence[int], str]]

    @classmethod
    def of(cls, state: State) -> Spec:
        return cls(tuple((k, tuple(v.shape), str(v.dtype).removeprefix("torch.")) for k, v in state.items()))

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return max(ALIGN, sum(_padded(shape, dtype) for _, shape, dtype in self.entries))

    def views(self, record: Any, at: int = 0) -> State:
        """The tensors of the record that begins there; they share its memory."""
        state = {}
        for name, shape, dtype in self.entries:
            kind, count = getattr(torch, dtype), math.prod(shape)
            flat = torch.empty(0, dtype=kind)
            if count:
                flat = torch.frombuffer(record, dtype=kind, count=count, offset=at)
            state[name] = flat.view(tuple(shape))
            at += _padded(shape, dtype)
        return state

    def fill(self, record: Any, state: Mapping[str, Tensor], at: int = 0) -> None:
        """Make the record that begins there the one of this state."""
        for name, view in self.views(record, at).items():
            view.copy_(state[name])


def _padded(shape: Sequence[int], dtype: str) -> int:
    itemsize: int = getattr(torch, dtype).itemsize
    return -(-math.prod(shape) * itemsize // ALIGN) * ALIGN


class StateTable:
    """The states of those clients that have taken part."""

    def __init__(self, spec: Spec, rows: RowFile) -> None:
        self.spec, self.rows = spec, rows

    def read(self, client: int) -> State | None:
        """A copy; None for a client that still has its initial state."""
        record = self.rows.read(client)
        return None if record is None else self.spec.views(record)

    def write(self, client: int, state: Mapping[str, Tensor]) -> None:
        record = bytearray(self.spec.size)
        self.spec.fill(record, state)
        self.rows.write(client, memoryview(record))

    def restore(self, saved: dict[str, Tensor]) -> None:
        """From the index of a checkpoint; those of versions before had a matrix per tensor, all rows."""
        if "weights" not in saved:
            self.rows.restore(saved)
            return
        for client in range(len(saved["weights"])):
            self.write(client, {name: rows[client] for name, rows in saved.items()})


def check_saved(spec: Spec, saved: Mapping[str, Tensor], clients: int) -> None:
    """Raises ValueError or KeyError where `StateTable.restore` could not go on from this."""
    if "weights" not in saved:
        check_index(dict(saved), "clients", spec.size, clients)
        return
    for name, shape, _ in spec.entries:
        if len(saved[name]) > clients or tuple(saved[name].shape[1:]) != tuple(shape):
            raise ValueError(f"{name} is a table of {tuple(saved[name].shape)}")


class Scratch:
    """Rows in shared memory, each for the state after a task and for a message of at most `room` bytes: the
    reply to a client, which its upload then replaces. Through a socket they would be copied four times."""

    def __init__(self, spec: Spec, n: int, room: int, descriptor: int | None = None) -> None:
        self.spec, self.n, self.room = spec, n, room
        self._stride = spec.size + -(-room // ALIGN) * ALIGN
        self.descriptor = memory_file(n * self._stride) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, n * self._stride)

    def close(self) -> None:
        with contextlib.suppress(BufferError):  # somebody still holds a row
            self._memory.close()
        os.close(self.descriptor)

    def write(self, row: int, state: State) -> None:
        self.spec.fill(self._memory, state, row * self._stride)

    def state(self, row: int) -> State:
        """Good until a worker leaves another one there."""
        return self.spec.views(self._memory, row * self._stride)

    def record(self, row: int) -> memoryview:
        return self._bytes(row * self._stride, self.spec.size)

    def put_message(self, row: int, data: bytes | memoryview | None) -> int | None:
        """How long it is; None where there is none."""
        if data is None:
            return None
        if len(data) > self.room:
            raise ValueError(f"a message of {len(data)} bytes is longer than any can be ({self.room})")
        self._bytes(row * self._stride + self.spec.size, len(data))[:] = data
        return len(data)

    def message(self, row: int, length: int | None) -> memoryview | None:
        """Good until there is another one."""
        return None if length is None else self._bytes(row * self._stride + self.spec.size, length)

    def _bytes(self, at: int, length: int) -> memoryview:
        return memoryview(self._memory)[at : at + length]
