"""Does the score tell what zeroing costs? Predicted and measured change of the loss, by score decile.

A client trains alone for a few rounds' worth of local training. Then the parameters of every exchanged layer
are sorted by a score into ten equal parts, one part at a time is set to zero, and the mean loss over the
client's training samples is measured again. Batch norm uses fixed statistics, estimated anew over all samples
after training: the running ones lag behind after a few steps, and per-sample gradients need fixed ones.

    first-order    sum of -g*theta, g the gradient over all samples
    batch          sum of -b*theta + 1/2 (b*theta)^2, b the last mini-batch's gradient: Eq. 7, FedPURIN's
    fisher         sum of -g*theta + 1/2 theta^2 mean(g_k^2), g_k the gradient of sample k alone: Eq. 5
    magnitude, random   controls without a prediction

The same for the lower half of every layer at once, which is what a mask with tau = 0.5 does. Then the lower
half by the batch score is left at zero, the client trains one round more, and it is counted how many of these
weights come back: whether masks lock in.

Shapes: D all parameters, d exchanged ones.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.config import Config
from fedpurin.core import critical_mask, perturbation
from fedpurin.job import Job
from fedpurin.layout import Selection, read_gradients, read_parameters, write_parameters
from fedpurin.reproduce.result_store import identity
from fedpurin.train import (
    EVALUATION_BATCH,
    ClientData,
    as_batch,
    evaluate,
    generator,
    key,
    prepare_inputs,
    prepare_process,
    train,
)

DECILES = 10
SMALL = 0.01  # a step of this share towards zero shows whether the derivative itself is right
FLOOR = 1e-10
MASKS = {"mask": False, "mask_hessian": True}  # without and with the quadratic term
REPEATS = 5
CLOCK = "processor"  # time of this process: others on the machine slow training down, and a short mask hardly


@dataclass(frozen=True)
class Trained:
    """A client after its training, whose exchanged parameters can be made smaller."""

    model: nn.Module
    data: ClientData
    selection: Selection
    theta_D: Tensor

    def exchanged(self, full_D: Tensor) -> Tensor:
        """[d]"""
        return self.selection.take(full_D[None])[0]

    def write_times(self, factor: float, chosen_d: Tensor) -> None:
        """The trained parameters, but the chosen ones times the factor."""
        theta_d = self.exchanged(self.theta_D)
        changed_d = torch.where(chosen_d, theta_d * factor, theta_d)
        write_parameters(self.model, self.selection.put(self.theta_D[None], changed_d[None])[0])

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        x = prepare_inputs(self.data.train_x, "cpu")
        for xs, ys in zip(torch.split(x, size), torch.split(self.data.train_y, size), strict=True):
            yield as_batch(xs), ys

    def loss(self) -> float:
        """Mean over the training samples."""
        self.model.eval()
        total = 0.0
        with torch.no_grad():
            for xs, ys in self.batches(EVALUATION_BATCH):
                total += float(F.cross_entropy(self.model(xs), ys, reduction="sum").double())
        return total / len(self.data.train_y)

    def accuracy(self) -> float:
        return evaluate(self.model, self.data, "cpu").accuracy


def check_perturbation(config: Config, clients: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """The line of `perturbation.jsonl`: means over the first clients."""
    prepare_process()
    job = Job.build(config)
    measured = []
    for client in range(min(clients, job.config.run.clients)):
        progress(f"client {client}: training, scoring, zeroing")
        measured.append(_one_client(job, client))
    return {**identity(config), "clients": len(measured), "clock": CLOCK, **_means(measured)}


def _means(measured: list[Any]) -> Any:
    """The mean of each number, wherever it stands in these tables of one shape; None where there is none."""
    if isinstance(measured[0], dict):
        return {name: _means([table[name] for table in measured]) for name in measured[0]}
    if isinstance(measured[0], list):
        return [_means(list(values)) for values in zip(*measured, strict=True)]
    numbers = [v for v in measured if v is not None]
    return round(sum(numbers) / len(numbers), 6) if numbers else None


def _one_client(job: Job, client: int) -> dict[str, Any]:
    model, data, rounds = job.model(client), job.client_data(client), job.config.run.rounds

    def train_round(t: int) -> None:
        order = key(job.config.run.seed, t, client)
        train(model, data, job.config.train, lambda m, x, y: F.cross_entropy(m(x), y), order, "cpu")

    began = time.process_time()
    for t in range(1, rounds + 1):
        train_round(t)
    seconds = {"training": (time.process_time() - began) / rounds}
    batch_d = job.selection.take(read_gradients(model)[None])[0]
    settle_norms(model, data)
    trained = Trained(model, data, job.selection, read_parameters(model))
    theta_d = trained.exchanged(trained.theta_D)
    for name, hessian in MASKS.items():
        seconds[name] = _mask_seconds(batch_d, theta_d, job.selection, hessian=hessian)
    order = generator(job.config.run.seed, "random score", client)
    terms = _terms(trained, batch_d, order, seconds)
    loss, accuracy = trained.loss(), trained.accuracy()
    scores, half_loss, half_accuracy = {}, {}, {}
    for name, (score_d, predicted_d) in terms.items():
        scores[name] = _by_decile(trained, score_d, predicted_d, loss)
        trained.write_times(0.0, _lower_half(score_d, job.selection))
        half_loss[name] = trained.loss() - loss
        half_accuracy[name] = trained.accuracy()
    zeroed_d = _lower_half(terms["batch"][0], job.selection)
    trained.write_times(0.0, zeroed_d)
    train_round(rounds + 1)
    return {
        "loss": loss,
        "accuracy": accuracy,
        "scores": scores,
        "half_loss": half_loss,
        "half_accuracy": half_accuracy,
        "lock_in": _lock_in(trained, zeroed_d),
        "seconds": seconds,
        "shares": _shares(batch_d, theta_d, job.selection),
    }


def _lower_half(score_d: Tensor, selection: Selection) -> Tensor:
    """bool [d]: the lower half of every layer by this score, which a mask with tau = 0.5 would zero."""
    return deciles(score_d, selection.sizes) < DECILES // 2


def _lock_in(trained: Trained, zeroed_d: Tensor) -> dict[str, float]:
    """Of the weights that were zeroed before the last training: what their scores are after it."""
    g_d, theta_d = (trained.exchanged(read(trained.model)) for read in (read_gradients, read_parameters))
    score_d = perturbation(g_d[None], theta_d[None])[0]
    upper_d = ~_lower_half(score_d, trained.selection)
    return {
        "score_zero": float((score_d[zeroed_d] == 0).float().mean()),
        "selected_again": float(upper_d[zeroed_d].float().mean()),
        "kept_selected_again": float(upper_d[~zeroed_d].float().mean()),
    }


@torch.no_grad()
def settle_norms(model: nn.Module, data: ClientData) -> None:
    """Batch-norm statistics of the trained model over all samples, in place of the running ones."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches
    model.train()
    for xs in torch.split(prepare_inputs(data.train_x, "cpu"), EVALUATION_BATCH):
        model(as_batch(xs))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _terms(
    trained: Trained, batch_d: Tensor, order: torch.Generator, seconds: dict[str, float]
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Each score with its signed prediction per parameter; `seconds` learns what the costly ones took."""
    model, samples = trained.model, len(trained.data.train_y)
    theta_d = trained.exchanged(trained.theta_D)
    model.eval()
    began = time.process_time()
    model.zero_grad(set_to_none=True)
    for xs, ys in trained.batches(EVALUATION_BATCH):
        (F.cross_entropy(model(xs), ys, reduction="sum") / samples).backward()  # type: ignore[no-untyped-call]
    first = -trained.exchanged(read_gradients(model)) * theta_d
    seconds["full_gradient"], began = time.process_time() - began, time.process_time()
    squares_D = torch.zeros_like(trained.theta_D)  # of the gradient of one sample, summed
    for xs, ys in trained.batches(1):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(xs), ys).backward()  # type: ignore[no-untyped-call]
        squares_D += read_gradients(model).square_()
    fisher = first + 0.5 * theta_d.square() * trained.exchanged(squares_D / samples)
    seconds["fisher"] = time.process_time() - began
    batch = -batch_d * theta_d + 0.5 * (batch_d * theta_d).square()
    return {
        "first-order": (first.abs(), first),
        "batch": (batch.abs(), batch),
        "fisher": (fisher.abs(), fisher),
        "magnitude": (theta_d.abs(), None),
        "random": (torch.rand(len(theta_d), generator=order), None),
    }


def _by_decile(
    trained: Trained, score_d: Tensor, predicted_d: Tensor | None, before: float
) -> dict[str, list[float | None]]:
    """Decile 1 holds the lowest scores of every layer, decile 10 the highest."""
    decile_d = deciles(score_d, trained.selection.sizes)
    changes: dict[str, list[float | None]] = {"predicted": [], "measured": [], "small": []}
    for i in range(DECILES):
        chosen = decile_d == i
        predicted = None if predicted_d is None else float(predicted_d[chosen].double().sum())
        changes["predicted"].append(predicted)
        for kind, factor in (("measured", 0.0), ("small", 1 - SMALL)):
            trained.write_times(factor, chosen)
            changes[kind].append((trained.loss() - before) / (1 - factor))
    return changes


def deciles(score_d: Tensor, sizes: list[int]) -> Tensor:
    """int [d]: 0..9 by rank inside each layer; layers too small for ten parts fill the upper ones."""
    out = torch.empty(len(score_d), dtype=torch.int64)
    for part, place in zip(torch.split(score_d, sizes), torch.split(out, sizes), strict=True):
        rank, size = part.argsort(stable=True).argsort(), len(part)
        place.copy_((rank + 1) * DECILES // (size + 1) if size < DECILES else rank * DECILES // size)
    return out


def _mask_seconds(batch_d: Tensor, theta_d: Tensor, selection: Selection, *, hessian: bool) -> float:
    """FedPURIN's scoring and masking, median of some: the gradient is there already."""

    def mask() -> None:
        critical_mask(perturbation(batch_d[None], theta_d[None], hessian=hessian), selection.sizes, 0.5)

    return median(timeit.repeat(mask, timer=time.process_time, number=1, repeat=REPEATS))


def _shares(batch_d: Tensor, theta_d: Tensor, selection: Selection) -> dict[str, float]:
    """What float16 and the floor do: zero gradients, scores at the floor, share kept at tau = 0.5."""
    shares: dict[str, float] = {}
    for name, g_d in (("float32", batch_d), ("float16", batch_d.half().float())):
        scores = perturbation(g_d[None], theta_d[None])
        shares[f"zero_gradient_{name}"] = float((g_d == 0).float().mean())
        shares[f"at_floor_{name}"] = float((scores <= FLOOR).float().mean())
        shares[f"kept_{name}"] = float(critical_mask(scores, selection.sizes, 0.5).float().mean())
    unfloored = critical_mask(perturbation(batch_d[None], theta_d[None]), selection.sizes, 0.5, floor=-1.0)
    shares["kept_without_floor"] = float(unfloored.float().mean())
    return shares
