"""`package.module:function`: how users name their own models and data."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from fedpurin.errors import FedpurinError

_permitted: frozenset[str] | None = None  # None: every name


def permit_only(names: Iterable[str]) -> None:
    """From now on this process imports these names and no others: at a site, names come from the server."""
    global _permitted  # one switch for the whole process
    _permitted = frozenset(names)


def load_function(name: str, error: type[FedpurinError]) -> Callable[..., Any]:
    """Import what `package.module:function` names; the current directory is searched too."""
    function = load_object(name, error)
    if not callable(function):
        raise error(f"{name!r} names something that is no function: it cannot be called")
    return function  # type: ignore[no-any-return]


def load_object(name: str, error: type[FedpurinError]) -> Any:
    if _permitted is not None and name not in _permitted:
        raise error(
            f"{name!r} is not allowed at this site: read that function, and if you agree start the client "
            f"with --allow {name}"
        )
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as problem:
        raise error(
            f"cannot import {module_name!r} of {name!r} ({problem}); "
            "run from the folder that holds it, or set PYTHONPATH"
        ) from problem
    except Exception as problem:  # whatever the user's module raises
        raise error(f"{module_name!r} of {name!r} fails: {type(problem).__name__}: {problem}") from problem
    named = getattr(module, attribute, None)
    if named is None:
        hint = ""
        if module_name == "__main__":
            hint = "; __main__ is the program that runs: put the function into a file of its own"
        raise error(f"module {module_name!r} has no function {attribute!r}{hint}")
    return named
