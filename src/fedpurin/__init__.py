"""fedpurin: personalised federated learning that sends only what matters.

    import fedpurin
    data = {"Berlin": (x, y), "Paris": (x, y)}
    result = fedpurin.run(model=make_model, data=data, method="fedpurin", rounds=20)
    result.report("report.html")
    result.client("Berlin").model()

Names load when first used, so that `import fedpurin` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpurin.version import __version__ as __version__

if TYPE_CHECKING:
    from fedpurin.api import load, resume, run
    from fedpurin.comparing import compare
    from fedpurin.config import Config
    from fedpurin.data import Clients, Dataset, Split, clients, make_split
    from fedpurin.errors import FedpurinError
    from fedpurin.methods import METHODS, Method
    from fedpurin.result import Comparison, RunResult
    from fedpurin.runs.run import Run
    from fedpurin.tuning import tune

_NAMES = {
    "api": ("load", "resume", "run"),
    "comparing": ("compare",),
    "config": ("Config",),
    "data": ("Clients", "Dataset", "Split", "clients", "make_split"),
    "errors": ("FedpurinError",),
    "methods": ("METHODS", "Method"),
    "result": ("Comparison", "RunResult"),
    "runs.run": ("Run",),
    "tuning": ("tune",),
}

__all__ = [
    "METHODS",
    "Clients",
    "Comparison",
    "Config",
    "Dataset",
    "FedpurinError",
    "Method",
    "Run",
    "RunResult",
    "Split",
    "clients",
    "compare",
    "load",
    "make_split",
    "resume",
    "run",
    "tune",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
