"""What clients learn: the loss, the metric and the optimiser, by name or as the user's own functions.

loss       (output [n, ...], y [n, ...]) -> the mean loss of a mini-batch
metric     (output, y) of all test samples of a client -> a number, the higher the better
optimiser  (parameters) -> a torch optimiser, new in every round
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.config import PYTHON
from fedpurin.errors import ConfigError
from fedpurin.sections import TrainSection

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], float]
Optimiser = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class LearningTask:
    loss: Loss
    metric: Metric | None  # None: accuracy, which is counted
    optimiser: Optimiser | None  # None: the one that train.optimiser names

    @property
    def classifies(self) -> bool:
        return self.loss is F.cross_entropy

    def loss_sum(self, output: Tensor, y: Tensor) -> float:
        """Over the samples of a batch."""
        if self.classifies:
            return float(F.cross_entropy(output, y, reduction="sum"))
        return float(self.loss(output, y)) * len(y)


def mse(output: Tensor, y: Tensor) -> Tensor:
    """Mean squared error. Outputs [n, 1] are compared with targets [n] one by one, never broadcast."""
    return F.mse_loss(_like(output, y), y)


def bce(output: Tensor, y: Tensor) -> Tensor:
    """Several yes-or-no labels per sample; the outputs are logits."""
    return F.binary_cross_entropy_with_logits(_like(output, y), y)


def r2(output: Tensor, y: Tensor) -> float:
    """The share of the variance that is explained; 0 where the targets do not vary and are not met."""
    y = y.double()
    unexplained = float((_like(output, y).double() - y).square().sum())
    variance = float((y - y.mean(0)).square().sum())
    return 1 - unexplained / variance if variance else float(unexplained == 0)


def label_accuracy(output: Tensor, y: Tensor) -> float:
    """The share of yes-or-no labels that are right."""
    return float(((_like(output, y) > 0) == (y > 0.5)).double().mean())


def _like(output: Tensor, y: Tensor) -> Tensor:
    if output.shape == y.shape:
        return output
    if output.numel() == y.numel() and len(output) == len(y):
        return output.reshape(y.shape)
    raise ConfigError(
        f"the model gives {list(output.shape[1:])} numbers for a sample, its target has {list(y.shape[1:])}; "
        "change the last layer of the model, or pass a loss of your own"
    )


LOSSES: dict[str, Loss] = {"cross_entropy": F.cross_entropy, "mse": mse, "bce": bce}
METRICS: dict[str, Metric | None] = {"accuracy": None, "r2": r2, "label_accuracy": label_accuracy}
USUAL_METRIC = {"cross_entropy": "accuracy", "mse": "r2", "bce": "label_accuracy"}


def named_metric(loss: str, metric: str) -> str:
    """What train.metric = auto stands for; with a loss of one's own it is accuracy."""
    return USUAL_METRIC.get(loss, "accuracy") if metric == "auto" else metric


METRIC_LABELS = {"accuracy": "accuracy", "r2": "R²", "label_accuracy": "label accuracy", PYTHON: "metric"}


def metric_text(loss: str, metric: str, value: float | None) -> str:
    """ "accuracy 81.2 %", "R² 0.42": as people write it."""
    name = named_metric(loss, metric)
    label = METRIC_LABELS[name]
    if value is None:
        return f"{label} not shared"
    return f"{label} {100 * value:5.1f} %" if name.endswith("accuracy") else f"{label} {value:.3f}"


def optimiser_named(settings: TrainSection) -> Optimiser:
    lr, decay = settings.lr, settings.weight_decay
    match settings.optimiser:
        case "adam":
            return partial(torch.optim.Adam, lr=lr, weight_decay=decay)
        case "adamw":
            return partial(torch.optim.AdamW, lr=lr, weight_decay=decay)
    return partial(torch.optim.SGD, lr=lr, weight_decay=decay, momentum=settings.momentum, fused=True)


CLASSIFICATION = LearningTask(F.cross_entropy, None, None)
