"""fedpurin: personalised federated learning that sends only what matters.

    import fedpurin
    config = fedpurin.Config.preset("quickstart").updated({"run": {"method": "fedpurin"}})
    result = fedpurin.run(config, "runs/first")
    result.figure("accuracy")

Names load when first used, so that `import fedpurin` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpurin.version import __version__ as __version__

if TYPE_CHECKING:
    from fedpurin.api import compare, load, resume, run
    from fedpurin.config import Config
    from fedpurin.data import Dataset, Split, make_split
    from fedpurin.errors import FedpurinError
    from fedpurin.methods import METHODS, Method
    from fedpurin.result import Run

_HOME = {
    "Config": "config",
    "Dataset": "data",
    "FedpurinError": "errors",
    "METHODS": "methods",
    "Method": "methods",
    "Run": "result",
    "Split": "data",
    "compare": "api",
    "load": "api",
    "make_split": "data",
    "resume": "api",
    "run": "api",
}

__all__ = [
    "METHODS",
    "Config",
    "Dataset",
    "FedpurinError",
    "Method",
    "Run",
    "Split",
    "compare",
    "load",
    "make_split",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
