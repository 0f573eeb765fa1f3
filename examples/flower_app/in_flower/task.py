"""What the app had before FedPURIN: a model, a client's images, a training loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin import data


def make_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


def load(partition: int, partitions: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """This client's share: some classes more than others."""
    sample = data.load("fashion-mnist-mini")
    kinds = [(3 * partition + step) % 10 for step in range(4)]
    rows = torch.cat(
        [torch.nonzero(sample.train_y == kind).flatten()[partition::partitions][:15] for kind in kinds]
    )
    x, y = sample.train_x[rows].float() / 255, sample.train_y[rows]
    test = torch.arange(len(y)) % 5 == 0
    return x[~test], y[~test], x[test], y[test]


def train(model: nn.Module, x: Tensor, y: Tensor) -> float:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.train()
    for _ in range(2):
        for batch in torch.randperm(len(y)).split(12):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    return float((model(x).argmax(1) == y).float().mean())
