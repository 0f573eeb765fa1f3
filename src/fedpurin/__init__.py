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

_HOME = {
    "Clients": "data",
    "Comparison": "result",
    "Config": "config",
    "Dataset": "data",
    "FedpurinError": "errors",
    "METHODS": "methods",
    "Method": "methods",
    "Run": "runs.run",
    "RunResult": "result",
    "Split": "data",
    "clients": "data",
    "compare": "comparing",
    "load": "api",
    "make_split": "data",
    "resume": "api",
    "run": "api",
    "tune": "tuning",
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
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
