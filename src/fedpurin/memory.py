"""What becomes of memory that was freed. Only glibc has these calls; elsewhere they do nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os

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
