"""FedBN: FedAvg of everything but the normalisation layers, which stay personal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout
from fedpurin.methods.base import Method


@dataclass(frozen=True)
class FedBN(Method):
    name: ClassVar[str] = "fedbn"
    label: ClassVar[str] = "FedBN"

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "head")
