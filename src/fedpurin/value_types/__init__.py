"""The types in which values travel, a file each: the file's name is the type's, and TYPE in it says how.

A new file is known to the wire, the configuration, the command line and the ledger without another line
anywhere. `NAMES` loads none of them, so that the command line starts fast.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpurin.value_types.base import ValueType

NAMES = tuple(sorted(entry.name for entry in iter_modules(__path__) if entry.name != "base"))


@cache
def all_types() -> dict[str, ValueType]:
    """By name, in the order of their numbers."""
    types = {name: import_module(f"{__name__}.{name}").TYPE for name in NAMES}
    return dict(sorted(types.items(), key=lambda entry: entry[1].number))


def find_type(name: str) -> ValueType:
    if name not in NAMES:
        raise ValueError(f"value type {name!r} is unknown; choose one of {', '.join(all_types())}")
    return all_types()[name]


@cache
def name_of(number: int) -> str | None:
    """The type that a message's header names; None where there is none of that number."""
    return next((name for name, kind in all_types().items() if kind.number == number), None)
