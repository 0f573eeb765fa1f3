"""A file of equal records, at most one per client, of which a checkpoint needs to write only what is new.

The states of all clients of a simulation, and what a server keeps for each of them, are too large to be held
in memory, or to be written whole, once there are thousands of clients. Here each lies in a slot of one file
in the run directory. A client that never took part has no record: its state follows from the seed.

    write     puts the record into a slot that nothing refers to; the file's pages are the system's to keep
              in memory or not
    index     what a checkpoint holds: which client's record is in which slot, with its CRC-32
    committed the slots of this checkpoint, and of the one before it, are not written to any more

So a slot that a kept checkpoint refers to is never changed, and whatever a process that was killed had
written since lies in slots that count as free. Records are read and written by position rather than through a
mapping: pages of a mapping count as resident, and a full disk under one ends the process.
"""

from __future__ import annotations

import os
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedpurin import files

ALIGN = 4096
INDEX = (".client", ".slot", ".crc", ".size")
Index = dict[str, Tensor]
"""NAME.client, NAME.slot, NAME.crc: int64 [k] each, by client; NAME.size: [1]. Of a file that has no name on
disk also NAME.rows, uint8 [k, size]: the records themselves."""

Writing = Callable[[], AbstractContextManager[None]]
"""What goes around every change of the file: it makes a clear error of one that fails."""


class RowFile:
    """Records of `size` bytes. Without a path they are in memory. `beside`: see `restore`."""

    def __init__(
        self,
        name: str,
        size: int,
        path: Path | None = None,
        writing: Writing = nullcontext,
        beside: Sequence[Index] = (),
    ) -> None:
        self.name, self.size, self.path, self._writing, self.beside = name, size, path, writing, beside
        self.stride = _stride(size)
        self._at: dict[int, int] = {}  # client -> slot
        self._crc: dict[int, int] = {}  # client -> checksum of its record, from when an index first asks
        self._held: list[set[int]] = []  # slots of the checkpoints that are kept
        self._free: list[int] = []
        self._end = 0  # slots from here on were never used
        self._close: Callable[[], object] = lambda: None

    @cached_property
    def descriptor(self) -> int:
        """For reading; the file is there from when this is first asked for."""
        if self.path is None:
            descriptor = memory_file()
        else:
            if not self.path.exists():
                with self._writing():
                    files.append(self.path, b"")
                    files.disk.sync(self.path.parent)
            descriptor = os.open(files.regular(self.path), os.O_RDONLY)
        self._close = weakref.finalize(self, os.close, descriptor)
        return descriptor

    def close(self) -> None:
        self._close()

    def __contains__(self, client: int) -> bool:
        return client in self._at

    def __len__(self) -> int:
        return len(self._at)

    def place(self, client: int) -> int | None:
        """Where in the file this client's record begins; None: it has none."""
        slot = self._at.get(client)
        return None if slot is None else slot * self.stride

    def read(self, client: int) -> bytearray | None:
        """A copy."""
        at = self.place(client)
        return None if at is None else read_at(self.descriptor, at, self.size)

    def write(self, client: int, record: memoryview) -> None:
        slot = self._take_slot(self._at.get(client))
        descriptor = self.descriptor
        if self.path is None:
            write_at(descriptor, slot * self.stride, record)
        else:
            with self._writing():
                files.disk.put(self.path, slot * self.stride, record)
        self._at[client] = slot
        self._crc.pop(client, None)

    def drop(self, client: int) -> None:
        """This client has no record any more."""
        slot = self._at.pop(client, None)
        self._crc.pop(client, None)
        if slot is not None and not self._is_held(slot):
            self._free.append(slot)

    def _take_slot(self, now: int | None) -> int:
        """The client's own, unless a checkpoint needs what it holds; else a free one, or a new one."""
        if now is not None and not self._is_held(now):
            return now
        if self._free:
            return self._free.pop()
        self._end += 1
        return self._end - 1

    def _is_held(self, slot: int) -> bool:
        return any(slot in held for held in self._held)

    # Checkpoints

    def index(self) -> Index:
        """For a checkpoint, which is written after `sync`."""
        clients = sorted(self._at)
        for client in clients:
            if client not in self._crc:
                self._crc[client] = zlib.crc32(self.read(client) or b"")
        slots, crcs = ([numbers[client] for client in clients] for numbers in (self._at, self._crc))
        lists = {"client": clients, "slot": slots, "crc": crcs, "size": [self.size]}
        index = {key: torch.tensor(numbers, dtype=torch.int64) for key, numbers in lists.items()}
        if self.path is None:
            records = [torch.frombuffer(self.read(client), dtype=torch.uint8) for client in clients]
            index["rows"] = torch.stack(records) if records else torch.empty(0, self.size, dtype=torch.uint8)
        return {f"{self.name}.{key}": tensor for key, tensor in index.items()}

    def sync(self) -> None:
        if self.path is not None and self._at:
            files.disk.sync(self.path)

    def committed(self, kept_before: int) -> None:
        """A checkpoint with the present index stands, and so many before it."""
        self._hold([*self._held[max(0, len(self._held) - kept_before) :], set(self._at.values())])

    def _hold(self, held: list[set[int]]) -> None:
        self._held = held
        used = set().union(*held, self._at.values())
        self._free = sorted(set(range(self._end)) - used, reverse=True)

    def restore(self, tensors: Index) -> None:
        """Go on from the index of a checkpoint, among whatever other tensors. `beside` are those of
        checkpoints that stay, so that what they refer to stays too."""
        if f"{self.name}.rows" in tensors:
            for client in list(self._at):
                self.drop(client)
            for client, record in zip(
                tensors[f"{self.name}.client"].tolist(), tensors[f"{self.name}.rows"], strict=True
            ):
                self.write(client, memoryview(record.numpy()))
            return
        self._at = {client: slot for client, slot, _ in _entries(tensors, self.name)}
        self._crc = {client: crc for client, _, crc in _entries(tensors, self.name)}
        held = [{slot for _, slot, _ in _entries(each, self.name)} for each in (*self.beside, tensors)]
        self._end = max((slot + 1 for slots in held for slot in slots), default=0)
        self._hold(held)


Rows = Callable[[str, int], RowFile]
"""Where records of this name and size are kept."""


def in_memory(name: str, size: int) -> RowFile:
    return RowFile(name, size)


def check_rows(folder: Path, tensors: Index) -> None:
    """Raises ValueError where a record that one of these indices names is not as it was written."""
    for name in [key.removesuffix(".slot") for key in tensors if key.endswith(".slot") and len(tensors[key])]:
        size, path = int(tensors[f"{name}.size"]), folder / f"{name}.rows"
        descriptor = os.open(files.regular(path), os.O_RDONLY)
        try:
            if not 0 <= size <= os.fstat(descriptor).st_size:
                raise ValueError(f"{path} ends before a record of {size} bytes does")
            for client, slot, crc in _entries(tensors, name):
                if slot < 0:
                    raise ValueError(f"the record of client {client} in {path} has no place")
                if zlib.crc32(read_at(descriptor, slot * _stride(size), size)) != crc:
                    raise ValueError(f"the record of client {client} in {path} is not as it was written")
        finally:
            os.close(descriptor)


def check_index(tensors: Index, name: str, size: int, clients: int) -> None:
    """Raises ValueError where an index is not one of records of this size, at most one per client."""
    if any(tensors[f"{name}.{key}"].dtype != torch.int64 for key in ("client", "crc", "size")):
        raise ValueError(f"the index of its {name} is not of whole numbers")
    ids, found = tensors[f"{name}.client"].tolist(), int(tensors[f"{name}.size"])
    if found != size:
        raise ValueError(f"its {name} are records of {found} bytes, not {size}")
    if len(set(ids)) != len(ids) or not all(0 <= client < clients for client in ids):
        raise ValueError(f"its {name} are not one for each of {clients} clients")
    records = tensors.get(f"{name}.rows")
    if records is None:
        list(_entries(tensors, name))
    elif records.shape != (len(ids), size):
        raise ValueError(f"its {name} are no table of {len(ids)} x {size} bytes")


def _stride(size: int) -> int:
    return -(-max(size, 1) // ALIGN) * ALIGN


def _entries(tensors: Index, name: str) -> Iterator[tuple[int, int, int]]:
    """client, slot, crc"""
    columns = (tensors.get(f"{name}.{key}", torch.empty(0)).tolist() for key in ("client", "slot", "crc"))
    return zip(*columns, strict=True)


def read_at(descriptor: int, at: int, size: int) -> bytearray:
    """Raises ValueError where the file ends before."""
    record = bytearray(size)
    view, done = memoryview(record), 0
    while done < size:
        count = os.preadv(descriptor, [view[done:]], at + done)
        if not count:
            raise ValueError(f"the file ends before byte {at + size}")
        done += count
    return record


def write_at(descriptor: int, at: int, record: memoryview) -> None:
    done = 0
    while done < len(record):
        done += os.pwrite(descriptor, record[done:], at + done)


def memory_file(size: int = 0) -> int:
    """The descriptor of a file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedpurin", 0)
    else:
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
