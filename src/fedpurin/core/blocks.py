"""Work on wide matrices in blocks of columns: bounded memory, the same bytes for any number of threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

BLOCK = 8192
"""Fewest columns of a block; a multiple of 8, so that blocks of packed masks start at whole bytes."""

ELEMENTS = 2**19
"""With few clients blocks are wider, up to this many elements: less overhead, still in the cache.

The width follows from the number of rows alone: sums are taken block by block, and their rounding must not
depend on the machine.
"""

Columns = Callable[[int, int], Tensor]
"""Gives the columns [lo, hi) of a matrix."""

T = TypeVar("T")


def as_floats(mask: Tensor) -> Tensor:
    """0.0 and 1.0; by way of bytes, which torch converts several times faster than booleans."""
    return mask.view(torch.uint8).to(torch.float32)


class Workspace(threading.local):
    """Memory that each thread uses again for every block: new pages cost more than the arithmetic on them."""

    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}

    def tensor(self, shape: torch.Size, dtype: torch.dtype = torch.float32) -> Tensor:
        """Uninitialised; valid until the thread asks for the same type again."""
        buffer = self.buffers.get(dtype)
        if buffer is None or buffer.numel() < shape.numel():
            buffer = self.buffers[dtype] = torch.empty(shape.numel(), dtype=dtype)
        return buffer[: shape.numel()].view(shape)


def block_width(rows: int) -> int:
    return BLOCK * max(1, ELEMENTS // (BLOCK * max(rows, 16)))


def each_block(rows: int, d: int, work: Callable[[int, int], T], width: int | None = None) -> Iterator[T]:
    """work(lo, hi) for every block of columns, results in order; blocks run on all cores."""
    width = width or block_width(rows)
    starts = range(0, d, width)
    threads = min(len(starts), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    if threads < 2:
        for lo in starts:
            yield work(lo, min(lo + width, d))
        return
    running: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for lo in starts:
            if len(running) > threads:  # few results wait at a time: they may be large
                yield running.popleft().result()
            running.append(pool.submit(work, lo, min(lo + width, d)))
        while running:
            yield running.popleft().result()


def by_columns(matrix: Tensor, work: Callable[[int, int], Tensor]) -> Tensor:
    """[d]: work(lo, hi) for every block of columns of the matrix [n, d], side by side."""
    rows, d = matrix.shape
    return torch.cat([torch.empty(0), *each_block(rows, d, work)])
