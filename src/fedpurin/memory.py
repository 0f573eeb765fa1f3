"""How much memory there is, and what becomes of what was freed.

The latter is told to glibc, the former by Linux; elsewhere nothing is done, and nothing is known to be short.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from pathlib import Path

from fedpurin.errors import DataError

TUNABLES = "GLIBC_TUNABLES"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
MAPPED_FROM = 2**25  # the most that glibc takes: larger pieces always go back to the system
KEPT = 2**28  # at the end of the heap


def keep_freed_memory() -> None:
    """Tensors of a few megabytes come and go with every mini-batch and message; new pages for each of them
    cost as much as the arithmetic on them. Where the environment has settings of its own, they hold."""
    if TUNABLES in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)


def give_back_memory() -> None:
    """What was freed goes back to the system: of many runs in one process each would keep a part of it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


MEMINFO = Path("/proc/meminfo")
LIMITS = (  # of the container, if this is one: of the second kind of control groups, and of the first
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def available_memory() -> float:
    """Bytes that one may hope for; infinite where the system does not tell."""
    return min(_free_in_machine(), *map(_number_in, LIMITS))


def _free_in_machine() -> float:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        return math.inf
    return 1024.0 * int(found[1]) if found else math.inf


def _number_in(file: Path) -> float:
    try:
        return float(file.read_text())
    except (OSError, ValueError):  # there is none, or it is the word "max"
        return math.inf


def check_fits(size: int, path: Path) -> None:
    """Refuse what unpacks to more than there is room for: the system would end the process instead."""
    room = available_memory()
    if size > room:
        raise DataError(
            f"{path} takes {size / 2**30:.1f} GiB of memory to read, {room / 2**30:.1f} GiB are free; give "
            "fewer samples, smaller ones, or pixels as uint8"
        )
