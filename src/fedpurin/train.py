"""Local SGD and evaluation of one client. Randomness comes from (seed, round, client) only."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedpurin.devices import upload
from fedpurin.errors import ModelError
from fedpurin.layout import NORMS, read_gradients, split_like
from fedpurin.memory import keep_freed_memory
from fedpurin.methods.base import Ending
from fedpurin.sections import TrainSection
from fedpurin.task import CLASSIFICATION, LearningTask, Optimiser, optimiser_named

EVALUATION_BATCH = 256
"""A constant: the rounding of a forward pass may depend on the batch size."""

AS_IT_IS = Ending()
LossFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]


def prepare_process() -> None:
    """Every process of every engine calls this first, so that all compute the same bytes."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]  # a property of the module object
    keep_freed_memory()


def key(*parts: int | str) -> int:
    """A 63-bit seed from named parts: the same on every machine, unrelated for different parts."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(*parts: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(key(*parts))


@dataclass(frozen=True)
class ClientData:
    """One client's samples: uint8 (scaled to [0, 1] when used), float, or whole numbers such as tokens."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    validation: tuple[Tensor, Tensor] | None = None  # x and y held out of the training samples

    def for_validation(self) -> ClientData | None:
        """The client's data with the validation samples in place of the test samples."""
        if self.validation is None:
            return None
        return replace(self, test_x=self.validation[0], test_y=self.validation[1])


@dataclass(frozen=True)
class Score:
    """The result of one evaluation, as it is reported: counts and a sum, so that means are exact."""

    correct: float  # an int where accuracy is counted; else the metric times `total`
    total: int
    loss_sum: float

    @property
    def accuracy(self) -> float:
        return self.correct / max(self.total, 1)

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.total, 1)


def prepare_inputs(x: Tensor, device: str) -> Tensor:
    """Samples on the device, floats unless whole numbers; images channels-last in memory, [n, H, W, C]."""
    x = upload(x, device)
    if x.dtype == torch.uint8:
        x = x.to(torch.float32) / 255
    elif x.is_floating_point():
        x = x.to(torch.float32)
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x


def as_batch(x: Tensor) -> Tensor:
    """The model's view of samples stored by `prepare_inputs`; no copy."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def batches(count: int, size: int, order: torch.Generator) -> list[Tensor]:
    """Shuffled index tensors."""
    return _divided(torch.randperm(count, generator=order), size)


def _divided(x: Tensor, size: int) -> list[Tensor]:
    """Batches in this order. A last one of one sample joins the one before: batch norm needs two."""
    parts = list(torch.split(x, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def train(
    model: nn.Module,
    data: ClientData,
    settings: TrainSection,
    loss: LossFunction,
    seed: int,
    device: str,
    *,
    ending: Ending = AS_IT_IS,
    choose: Callable[[], Tensor] | None = None,
    optimiser_of: Optimiser | None = None,
    rate: float = 1.0,
) -> Tensor | None:
    """E epochs with a new optimiser, its learning rate times `rate`. The last gradients stay in the model.

    With `ending.squares` the result is [D]: the squared gradients of the last epoch's mini-batches, their
    mean. Before the last `ending.inside` epochs `choose` says what they train, bool [D]; all else is zero
    from then on.
    """
    x, y = prepare_inputs(data.train_x, device), upload(data.train_y, device)
    optimiser = (optimiser_of or optimiser_named(settings))(model.parameters())
    for group in optimiser.param_groups:
        group["lr"] *= rate
    torch.manual_seed(seed)  # for models with dropout: this process belongs to us
    order = torch.Generator().manual_seed(seed)
    model.train()
    if 1 in (len(y), settings.batch_size):
        # A batch of one has no variance: normalise with the running statistics instead.
        for module in model.modules():
            if isinstance(module, NORMS):
                module.eval()
    sums: list[Tensor] = []
    steps = 0
    squared, counted = None, 0
    left_out: list[Tensor] = []
    for epoch in range(settings.epochs):
        left = settings.epochs - epoch  # with this one
        if choose is not None and left == ending.inside:
            left_out = split_like(~choose().to(device), model)
            _clear(model, left_out)
        for index in batches(len(y), settings.batch_size, order):
            optimiser.zero_grad(set_to_none=True)
            index = upload(index, device)
            loss(model, as_batch(x.index_select(0, index)), y.index_select(0, index)).backward()  # type: ignore[no-untyped-call]
            if ending.squares and left == 1:
                now_squared = read_gradients(model).square_()
                squared = now_squared if squared is None else squared.add_(now_squared)
                counted += 1
            optimiser.step()
            _clear(model, left_out)
            if left <= ending.tail:
                now = [p.detach() for p in model.parameters()]
                sums = [p.clone() for p in now] if not sums else list(torch._foreach_add(sums, now))
                steps += 1
    if steps:
        with torch.no_grad():
            for p, total in zip(model.parameters(), sums, strict=True):
                p.copy_(total / steps)
    if ending.refresh:
        refresh_statistics(model, data, settings.batch_size, device)
    return None if squared is None else squared / counted


@torch.no_grad()
def _clear(model: nn.Module, left_out: list[Tensor]) -> None:
    """Zeros where the masks say so, one mask per parameter; no masks: nothing."""
    for p, mask in zip(model.parameters(), left_out, strict=bool(left_out)):
        p.masked_fill_(mask, 0.0)


@torch.no_grad()
def refresh_statistics(model: nn.Module, data: ClientData, batch_size: int, device: str) -> None:
    """Running statistics of the model as it is: the plain mean over batches, in the order of the samples."""
    norms = [
        m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats
    ]
    x = prepare_inputs(data.train_x, device)
    if not norms or len(x) < 2:
        return
    before = [m.momentum for m in norms]
    model.eval()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # torch: a cumulative mean
        m.train()
    for part in _divided(x, batch_size) if batch_size > 1 else [x]:
        model(as_batch(part))
    for m, momentum in zip(norms, before, strict=True):
        m.momentum = momentum


@torch.no_grad()
def evaluate(model: nn.Module, data: ClientData, device: str, task: LearningTask = CLASSIFICATION) -> Score:
    x, y = prepare_inputs(data.test_x, device), upload(data.test_y, device)
    if not len(y):
        return Score(0, 0, 0.0)
    model.eval()
    correct, loss_sum = 0, 0.0
    outputs = []
    for xs, ys in zip(torch.split(x, EVALUATION_BATCH), torch.split(y, EVALUATION_BATCH), strict=True):
        output = model(as_batch(xs))
        loss_sum += task.loss_sum(output, ys)
        if task.metric is None:
            correct += int((output.argmax(1) == ys).sum())
        else:
            outputs.append(output)
    if task.metric is None:
        return Score(correct, y.numel(), loss_sum)
    value = float(task.metric(torch.cat(outputs).cpu(), data.test_y))
    if not math.isfinite(value):
        raise ModelError(f"the metric is {value} for a client; it must give a finite number for every client")
    return Score(value * len(y), len(y), loss_sum)
