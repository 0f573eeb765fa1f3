"""Data sets and how they are divided among clients.

Names are imported when first used: `fedpurin.data.NAMES` costs neither torch nor numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpurin.data.catalog import DEFAULT, NAMES, SOURCES

if TYPE_CHECKING:
    from fedpurin.data.datasets import Dataset, load
    from fedpurin.data.download import get
    from fedpurin.data.official import FileCheck, check, is_present, resolve_data_dir
    from fedpurin.data.own import load_own
    from fedpurin.data.partition import KINDS, class_counts, make_split
    from fedpurin.data.per_client import Clients, clients
    from fedpurin.data.split import Split, hold_out

_HOME = {
    **dict.fromkeys(("Dataset", "load"), "datasets"),
    **dict.fromkeys(("FileCheck", "check", "is_present", "resolve_data_dir"), "official"),
    **dict.fromkeys(("KINDS", "class_counts", "make_split"), "partition"),
    **dict.fromkeys(("Clients", "clients"), "per_client"),
    **dict.fromkeys(("Split", "hold_out"), "split"),
    "get": "download",
    "load_own": "own",
}

__all__ = [
    "DEFAULT", "KINDS", "NAMES", "SOURCES", "Clients", "Dataset", "FileCheck", "Split", "check",
    "class_counts", "clients", "get", "hold_out", "is_present", "load", "load_own", "make_split",
    "resolve_data_dir",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
