"""Ditto: a global model as in FedAvg, and beside it a personal one that is pulled towards it.

w = the mean that the server sent;  v = the client's personal model (at first both: the initial model)
client    w' = w;  SGD on  CE(w');                              send w'
          SGD, from v on, on  CE(v) + pull / 2 * ||v - w||^2;   v stays here and is the model in use
server    mean of the w', weighted by samples; send it to everybody

Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021. The paper calls the
pull lambda. A round costs two local trainings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedpurin.layout import Layout, Selection, live_parameters
from fedpurin.messages import Delivery
from fedpurin.methods.base import Averaging, Fit
from fedpurin.methods.state import TensorState
from fedpurin.settings import setting


@dataclass(frozen=True)
class Global(TensorState):
    """What the client keeps beside its personal model."""

    w: Tensor  # [n, D]: the global model, as last received


@dataclass(frozen=True)
class Ditto(Averaging[Global]):
    name: ClassVar[str] = "ditto"
    label: ClassVar[str] = "Ditto"
    color: ClassVar[str] = "#17a2a2"
    dash: ClassVar[str] = "longdash"
    marker: ClassVar[str] = "star"
    order: ClassVar[int] = 21

    pull: float = setting(0.1, "lambda, the pull of the personal model to the global one", least=0)

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> Global:
        return Global(start_nD)

    def download(self, weights_nD: Tensor, delivery: Delivery, memory: Global) -> tuple[Tensor, Global]:
        w_nD, _ = super().download(memory.w, delivery, memory)
        return weights_nD, Global(w_nD)

    def start(self, weights_nD: Tensor, selection: Selection, memory: Global) -> Tensor:
        return memory.w

    def personal_start(self, weights_nD: Tensor, memory: Global) -> Tensor:
        return weights_nD

    def personal_loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: Global) -> Tensor:
        apart = live_parameters(model) - memory.w[0]
        return self.loss(model, x, y, memory) + self.pull / 2 * apart.square().sum()

    def in_use(self, fit: Fit, memory: Global) -> tuple[Tensor | None, Global]:
        return fit.personal_nD, memory
