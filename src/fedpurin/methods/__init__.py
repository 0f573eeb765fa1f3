"""The methods, one short file each. Every module here that defines a named `Method` is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fedpurin.errors import ConfigError
from fedpurin.methods.base import Fit, Method
from fedpurin.plugins import load_object

ENTRY_POINTS = "fedpurin.methods"
NEEDED = ("memory", "server", "aggregate", "reply")
"""What a method must say itself."""
AnyMethod = Method[Any, Any]


def _shipped() -> dict[str, type[AnyMethod]]:
    kinds = []
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        kinds += [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Method) and kind.__module__ == module.__name__
        ]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: (kind.order, kind.name)) if kind.name}


METHODS: dict[str, type[AnyMethod]] = _shipped()
"""The methods that come with fedpurin, by name, in the order of tables."""


@cache
def installed_methods() -> dict[str, str]:
    """Methods of other packages: name -> package.module:Class, from their entry points."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def method_names() -> list[str]:
    return [*METHODS, *(name for name in installed_methods() if name not in METHODS)]


def find_method(name: str) -> type[AnyMethod]:
    """The class behind a name: ours, another package's, or `package.module:Class`."""
    if name in METHODS:
        return METHODS[name]
    path = installed_methods().get(name, name)
    if ":" not in path:
        raise ConfigError(
            f"run.method = {name!r} is unknown; choose one of {', '.join(method_names())}, "
            "or package.module:Class"
        )
    kind = load_object(path, ConfigError)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise ConfigError(
            f"run.method = {name!r} is no method: {path} must be a class derived from fedpurin.Method"
        )
    if missing := [name for name in NEEDED if getattr(kind, name) is getattr(Method, name)]:
        raise ConfigError(f"run.method = {name!r} is no whole method: it lacks {', '.join(missing)}")
    return kind


__all__ = ["METHODS", "AnyMethod", "Fit", "Method", "find_method", "installed_methods", "method_names"]
