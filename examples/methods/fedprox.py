"""FedProx: FedAvg, with a pull towards the model that the round started from.

w_start = the mean that the server sent (at first: the common initial model)
client    w = w_start;  SGD on  CE(w) + mu / 2 * ||w - w_start||^2;  send w
server    mean of the w, weighted by samples; send it to everybody

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020. With mu = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedpurin.layout import Layout, Selection, live_parameters
from fedpurin.messages import Delivery
from fedpurin.methods.base import Averaging
from fedpurin.methods.state import TensorState
from fedpurin.settings import setting


@dataclass(frozen=True)
class Anchor(TensorState):
    """The model that the client's round starts from."""

    w_start: Tensor  # [n, D]


@dataclass(frozen=True)
class FedProx(Averaging[Anchor]):
    name: ClassVar[str] = "fedprox"
    label: ClassVar[str] = "FedProx"
    color: ClassVar[str] = "#8c564b"
    dash: ClassVar[str] = "dashdot"
    marker: ClassVar[str] = "diamond-tall"
    order: ClassVar[int] = 20

    mu: float = setting(0.01, "strength of the pull towards the start of the round; 0: FedAvg", least=0)

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> Anchor:
        return Anchor(start_nD)

    def download(self, weights_nD: Tensor, delivery: Delivery, memory: Anchor) -> tuple[Tensor, Anchor]:
        w_start_nD, _ = super().download(weights_nD, delivery, memory)
        return w_start_nD, Anchor(w_start_nD)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: Anchor) -> Tensor:
        apart = live_parameters(model) - memory.w_start[0]
        return super().loss(model, x, y, memory) + self.mu / 2 * apart.square().sum()
