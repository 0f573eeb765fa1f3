"""pFedSD: FedAvg's exchange; locally each client also learns from its own model of the round before.

loss = CE + lambda * temp^2 * KL(teacher || student) on temperature-softened logits, batch mean. The
teacher is the client's model at the end of its previous local training; it runs without gradients and
in training mode, so that its batch norm uses the statistics of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedpurin.layout import Layout, Selection
from fedpurin.messages import Message
from fedpurin.methods.base import Averaging, Fit
from fedpurin.methods.state import TensorState
from fedpurin.settings import setting


@dataclass(frozen=True)
class Teacher(TensorState):
    """Each client's own model at the end of its previous local training."""

    teacher: Tensor  # [n, D]
    teacher_round: Tensor  # int64 [n, 1]; 0: there is none yet


@dataclass(frozen=True)
class PFedSD(Averaging[Teacher]):
    name: ClassVar[str] = "pfedsd"
    label: ClassVar[str] = "pFedSD"
    color: ClassVar[str] = "#e69f00"
    dash: ClassVar[str] = "longdashdot"
    marker: ClassVar[str] = "triangle-down"
    order: ClassVar[int] = 4
    needs_classes: ClassVar[bool] = True

    distill: float = setting(0.5, "lambda, the weight of the teacher", least=0)
    temperature: float = setting(3.0, "softens the logits of teacher and student", above=0, most=10**6)

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> Teacher:
        return Teacher(torch.zeros_like(start_nD), torch.zeros(len(start_nD), 1, dtype=torch.int64))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: Teacher) -> Tensor:
        logits = model(x)
        loss = self.criterion(logits, y)
        if not memory.teacher_round.any():
            return loss
        temp = self.temperature
        with torch.no_grad():
            soft_targets = F.log_softmax(_teacher_logits(model, x, memory.teacher[0]) / temp, dim=1)
        divergence = F.kl_div(
            F.log_softmax(logits / temp, dim=1), soft_targets, reduction="batchmean", log_target=True
        )
        return loss + self.distill * temp**2 * divergence

    def upload(self, fit: Fit, memory: Teacher) -> tuple[Message | None, Teacher]:
        taught = torch.full_like(memory.teacher_round, fit.t)
        return Message(fit.theta_nd), Teacher(fit.end_nD, taught)


def _teacher_logits(model: nn.Module, x: Tensor, teacher_D: Tensor) -> Tensor:
    """The model's own forward pass with other parameters; its running statistics are left alone."""
    replaced: dict[str, Tensor] = {name: buffer.clone() for name, buffer in model.named_buffers()}
    start = 0
    for name, p in model.named_parameters():
        replaced[name] = teacher_D[start : start + p.numel()].view(p.shape)
        start += p.numel()
    logits: Tensor = functional_call(model, replaced, (x,))
    return logits
