"""coverage.safetensors: in how many rounds each exchanged parameter was critical."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import RunError
from fedpurin.files import regular
from fedpurin.runs.parsing import unreadable

Coverage = dict[str, NDArray[Any]]


def read_coverage(file: Path, layers: list[dict[str, Any]]) -> Coverage:
    """What docs/run-directory.md says is in it, for these layers."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        regular(file).open("rb").close()  # safetensors calls a file missing that it may not read
        stored = load_file(file)
    except OSError as error:
        raise unreadable(file, error) from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:  # or a type that numpy has not
        raise _damaged(file, f"cannot be read ({error})") from error
    if said := _complaint(stored, sum(layer["size"] for layer in layers if layer["exchanged"])):
        raise _damaged(file, f"is damaged: {said}")
    return stored


def _complaint(stored: Coverage, d: int) -> str:
    """What does not fit d exchanged parameters; "" where everything does."""
    clients = len(stored["client_ids"]) if np.ndim(stored.get("client_ids", 0)) else 0
    shapes = {"client_ids": (clients,), "client_counts": (clients, d), "server_counts": (d,), "rounds": (1,)}
    for name, shape in shapes.items():
        if name not in stored or stored[name].shape != shape or stored[name].dtype.kind not in "iu":
            return f"{name} is no table of {' x '.join(map(str, shape))} whole numbers"
    rounds = int(stored["rounds"][0])
    for name in ("client_counts", "server_counts"):
        if stored[name].size and not 0 <= stored[name].min() <= stored[name].max() <= rounds:
            return f"{name} has counts outside 0..{rounds}"
    return ""


def _damaged(file: Path, what: str) -> RunError:
    return RunError(f"{file} {what}; delete it to report without it")
