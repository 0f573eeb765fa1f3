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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.config import Config
from fedpurin.core import critical_mask, perturbation
from fedpurin.job import Job
from fedpurin.layout import Selection, read_gradients, read_parameters, write_parameters
from fedpurin.runs.same_setting import cell_key
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
MASKS = ("mask", "mask_hessian")  # without and with the quadratic term
REPEATS = 5


@dataclass(frozen=True)
class Gradients:
    """Of one client after its training."""

    full_d: Tensor
    batch_d: Tensor
    squares_d: Tensor  # mean over samples of the squared gradient of one sample
    seconds: dict[str, float]


def check_perturbation(
    config: Config, clients: int = 2, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """The line of `perturbation.jsonl`: means over the first clients."""
    prepare_process()
    job = Job.build(config)
    measured = []
    for client in range(min(clients, job.config.run.clients)):
        progress(f"client {client}: training, scoring, zeroing")
        measured.append(_one_client(job, client))
    scores = {
        name: {
            kind: [_mean([f["scores"][name][kind][i] for f in measured]) for i in range(DECILES)]
            for kind in ("predicted", "measured", "small")
        }
        for name in measured[0]["scores"]
    }

    def means(name: str) -> dict[str, Any]:
        return {key: _mean([f[name][key] for f in measured]) for key in measured[0][name]}

    return {
        "key": cell_key(config),
        "config": config.as_dict() | {"data": config.as_dict()["data"] | {"dir": ""}},
        "clients": len(measured),
        "loss": _mean([f["loss"] for f in measured]),
        "accuracy": _mean([f["accuracy"] for f in measured]),
        "scores": scores,
        **{name: means(name) for name in ("half_loss", "half_accuracy", "lock_in", "seconds", "shares")},
    }


def _mean(values: list[float | None]) -> float | None:
    numbers = [v for v in values if v is not None]
    return round(sum(numbers) / len(numbers), 6) if numbers else None


def _one_client(job: Job, client: int) -> dict[str, Any]:
    model, data, selection = job.model(client), job.client_data(client), job.selection
    settings, seed = job.config.train, job.config.run.seed
    began = time.perf_counter()
    for t in range(1, job.config.run.rounds + 1):
        train(model, data, settings, lambda m, x, y: F.cross_entropy(m(x), y), key(seed, t, client), "cpu")
    trained = (time.perf_counter() - began) / job.config.run.rounds
    batch_d = selection.take(read_gradients(model)[None])[0]
    settle_norms(model, data)
    gradients = _gradients(model, data, selection, batch_d)
    theta_D = read_parameters(model)
    theta_d = selection.take(theta_D[None])[0]
    terms = _terms(gradients, theta_d, generator(seed, "random score", client))
    before, accuracy = mean_loss(model, data), evaluate(model, data, "cpu").accuracy
    scores, half_loss, half_accuracy = {}, {}, {}
    for name, (score_d, predicted_d) in terms.items():
        scores[name] = _by_decile(model, data, selection, theta_D, score_d, predicted_d, before)
        _zero_lower_half(model, selection, theta_D, score_d)
        half_loss[name] = mean_loss(model, data) - before
        half_accuracy[name] = evaluate(model, data, "cpu").accuracy
    masks = {name: _mask_seconds(batch_d, theta_d, selection, hessian=name != "mask") for name in MASKS}
    measures = {
        "loss": before,
        "accuracy": accuracy,
        "scores": scores,
        "half_loss": half_loss,
        "half_accuracy": half_accuracy,
        "seconds": {"training": trained, **masks, **gradients.seconds},
        "shares": _shares(batch_d, theta_d, selection),
    }
    zeroed_d = _zero_lower_half(model, selection, theta_D, terms["batch"][0])
    more = key(seed, job.config.run.rounds + 1, client)
    train(model, data, settings, lambda m, x, y: F.cross_entropy(m(x), y), more, "cpu")
    return measures | {"lock_in": _lock_in(model, selection, zeroed_d)}


def _zero_lower_half(model: nn.Module, selection: Selection, theta_D: Tensor, score_d: Tensor) -> Tensor:
    """Zero the lower half of every layer by this score, as a mask with tau = 0.5 would; bool [d]: which."""
    lower_d = deciles(score_d, selection.sizes) < DECILES // 2
    kept_d = torch.where(lower_d, 0.0, selection.take(theta_D[None])[0])
    write_parameters(model, selection.put(theta_D[None], kept_d[None])[0])
    return lower_d


def _lock_in(model: nn.Module, selection: Selection, zeroed_d: Tensor) -> dict[str, float]:
    """Of the weights that were zeroed before the last training: what their scores are after it."""
    g_d, theta_d = (selection.take(read(model)[None])[0] for read in (read_gradients, read_parameters))
    score_d = perturbation(g_d[None], theta_d[None])[0]
    upper_d = deciles(score_d, selection.sizes) >= DECILES // 2
    return {
        "score_zero": float((score_d[zeroed_d] == 0).float().mean()),
        "selected_again": float(upper_d[zeroed_d].float().mean()),
        "kept_selected_again": float(upper_d[~zeroed_d].float().mean()),
    }


@torch.no_grad()
def settle_norms(model: nn.Module, data: ClientData) -> None:
    """Batch-norm statistics of the trained model over all samples, in place of the running ones."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # a plain mean over the batches
    model.train()
    for xs in torch.split(prepare_inputs(data.train_x, "cpu"), EVALUATION_BATCH):
        model(as_batch(xs))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(x, size), torch.split(y, size), strict=True)


def _gradients(model: nn.Module, data: ClientData, selection: Selection, batch_d: Tensor) -> Gradients:
    """Over all samples at once, and sample by sample."""
    x, y = prepare_inputs(data.train_x, "cpu"), data.train_y
    model.eval()
    began = time.perf_counter()
    model.zero_grad(set_to_none=True)
    for xs, ys in _batches(x, y, EVALUATION_BATCH):
        (F.cross_entropy(model(as_batch(xs)), ys, reduction="sum") / len(y)).backward()  # type: ignore[no-untyped-call]
    full_d = selection.take(read_gradients(model)[None])[0]
    full_seconds, began = time.perf_counter() - began, time.perf_counter()
    squares_D = torch.zeros_like(read_parameters(model))
    for xs, ys in _batches(x, y, 1):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(as_batch(xs)), ys).backward()  # type: ignore[no-untyped-call]
        squares_D += read_gradients(model).square_()
    squares_d = selection.take((squares_D / len(y))[None])[0]
    seconds = {"full_gradient": full_seconds, "fisher": time.perf_counter() - began}
    return Gradients(full_d, batch_d, squares_d, seconds)


def _terms(g: Gradients, theta_d: Tensor, order: torch.Generator) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Each score with its signed prediction per parameter."""
    first = -g.full_d * theta_d
    batch = -g.batch_d * theta_d + 0.5 * (g.batch_d * theta_d).square()
    fisher = first + 0.5 * theta_d.square() * g.squares_d
    return {
        "first-order": (first.abs(), first),
        "batch": (batch.abs(), batch),
        "fisher": (fisher.abs(), fisher),
        "magnitude": (theta_d.abs(), None),
        "random": (torch.rand(len(theta_d), generator=order), None),
    }


def _by_decile(
    model: nn.Module,
    data: ClientData,
    selection: Selection,
    theta_D: Tensor,
    score_d: Tensor,
    predicted_d: Tensor | None,
    before: float,
) -> dict[str, list[float | None]]:
    """Decile 1 holds the lowest scores of every layer, decile 10 the highest."""
    decile_d = deciles(score_d, selection.sizes)
    theta_d = selection.take(theta_D[None])[0]
    changes: dict[str, list[float | None]] = {"predicted": [], "measured": [], "small": []}
    for i in range(DECILES):
        chosen = decile_d == i
        changes["predicted"].append(
            None if predicted_d is None else float(predicted_d[chosen].double().sum())
        )
        for kind, factor in (("measured", 0.0), ("small", 1 - SMALL)):
            changed_d = torch.where(chosen, theta_d * factor, theta_d)
            write_parameters(model, selection.put(theta_D[None], changed_d[None])[0])
            changes[kind].append((mean_loss(model, data) - before) / (1 - factor))
    return changes


def deciles(score_d: Tensor, sizes: list[int]) -> Tensor:
    """int [d]: 0..9 by rank inside each layer; layers too small for ten parts fill the upper ones."""
    out = torch.empty(len(score_d), dtype=torch.int64)
    for part, place in zip(torch.split(score_d, sizes), torch.split(out, sizes), strict=True):
        rank = torch.empty(len(part), dtype=torch.int64)
        rank[part.argsort(stable=True)] = torch.arange(len(part))
        place.copy_(
            (rank + 1) * DECILES // (len(part) + 1) if len(part) < DECILES else rank * DECILES // len(part)
        )
    return out


@torch.no_grad()
def mean_loss(model: nn.Module, data: ClientData) -> float:
    x, y = prepare_inputs(data.train_x, "cpu"), data.train_y
    model.eval()
    total = 0.0
    for xs, ys in _batches(x, y, EVALUATION_BATCH):
        total += float(F.cross_entropy(model(as_batch(xs)), ys, reduction="sum").double())
    return total / len(y)


def _mask_seconds(batch_d: Tensor, theta_d: Tensor, selection: Selection, *, hessian: bool) -> float:
    """FedPURIN's scoring and masking, best of some: the gradient is there already."""
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        critical_mask(perturbation(batch_d[None], theta_d[None], hessian=hessian), selection.sizes, 0.5)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


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
