"""FedAvg: the sample-weighted mean of all parameters. Batch-norm statistics stay with the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpurin.methods.base import Method


@dataclass(frozen=True)
class FedAvg(Method):
    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"
