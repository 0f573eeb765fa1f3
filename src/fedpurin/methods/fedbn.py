"""FedBN: FedAvg of everything but the normalisation layers, which stay personal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout
from fedpurin.methods.base import PlainAveraging


@dataclass(frozen=True)
class FedBN(PlainAveraging):
    name: ClassVar[str] = "fedbn"
    label: ClassVar[str] = "FedBN"
    color: ClassVar[str] = "#009e73"
    dash: ClassVar[str] = "longdash"
    marker: ClassVar[str] = "triangle-up"
    order: ClassVar[int] = 3

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "head")
