"""FedPer: FedAvg of everything but the classification layer, which stays personal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout
from fedpurin.methods.base import Method


@dataclass(frozen=True)
class FedPer(Method):
    name: ClassVar[str] = "fedper"
    label: ClassVar[str] = "FedPer"

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "norm")
