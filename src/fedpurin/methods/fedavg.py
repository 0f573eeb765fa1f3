"""FedAvg: the sample-weighted mean of all parameters. Batch-norm statistics stay with the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpurin.methods.base import PlainAveraging


@dataclass(frozen=True)
class FedAvg(PlainAveraging):
    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"
    color: ClassVar[str] = "#56b4e9"
    dash: ClassVar[str] = "dash"
    marker: ClassVar[str] = "square"
    order: ClassVar[int] = 1
