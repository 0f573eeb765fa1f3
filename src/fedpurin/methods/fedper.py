"""FedPer: FedAvg of everything but the classification layer, which stays personal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout
from fedpurin.methods.base import PlainAveraging


@dataclass(frozen=True)
class FedPer(PlainAveraging):
    name: ClassVar[str] = "fedper"
    label: ClassVar[str] = "FedPer"
    color: ClassVar[str] = "#cc79a7"
    dash: ClassVar[str] = "dashdot"
    marker: ClassVar[str] = "diamond"
    order: ClassVar[int] = 2

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "norm")
