"""The machine that figures were taken on."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from fedpurin.engines.local import available_cores
from fedpurin.environment import cpu_name


def describe() -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "cores": available_cores(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],  # before the measurement: how quiet the machine was
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }
