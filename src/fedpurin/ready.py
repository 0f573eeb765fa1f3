"""Whatever can stop a run is tried before it begins: the device, and the model on two samples."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.devices import check_device, chosen, prepared
from fedpurin.errors import FedpurinError, ModelError
from fedpurin.job import Job
from fedpurin.train import ClientData, as_batch, prepare_inputs


def check_ready(job: Job, samples: Tensor | None = None, device: str | None = None) -> None:
    """Refuse a device that is not there and a model that does not fit the data.

    `samples` are a site's own; without them those of the job's data set are tried, or zeros of the agreed
    shape. `device` is where this process computes, if not on run.device.
    """
    device = device or chosen(job.config.run.device)
    check_device(device)
    job.describe_layout()  # refuses a model without a head, or one the method cannot exchange
    if job.given and job.given.clients:
        return check_task(job, job.given.clients.parts[0], device)
    if samples is None:
        samples = torch.zeros(2, *job.shape) if job.dataset is None else job.dataset.train_x
    check_model(job, samples, device)


def check_model(job: Job, samples: Tensor, device: str) -> None:
    """One forward pass as in training and one as in evaluation; each must give [n, classes]."""
    name, classes = job.config.model.name, len(job.class_names)
    pair = samples[[0, -1]]  # two, also where there is one: batch norm cannot train on a single sample
    model = prepared(job.model(0), device, job.config.train.precision)
    for training in (True, False):
        model.train(training)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                logits = model(as_batch(prepare_inputs(pair, device)))
        except Exception as problem:  # whatever the user's module raises
            raise ModelError(
                f"model {name} fails on samples of shape {list(job.shape)}: "
                f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            ) from problem
        if not isinstance(logits, Tensor):
            raise ModelError(
                f"model {name} gives a {type(logits).__name__}; its forward must return one tensor, "
                f"[n, {classes}]: a score for each of the {classes} classes"
            )
        if tuple(logits.shape) != (2, classes):
            raise ModelError(
                f"model {name} gives {list(logits.shape)} for 2 samples; it must give [2, {classes}]: "
                f"a score for each of the {classes} classes of the data"
            )
        if not logits.is_floating_point():
            raise ModelError(f"model {name} gives {logits.dtype}; scores must be floating point")


def check_task(job: Job, part: ClientData, device: str) -> None:
    """For data passed from Python: a forward pass and its loss, whatever the task is."""
    x, y = as_batch(prepare_inputs(part.train_x[:4], device)), part.train_y[:4].to(device)
    model = prepared(job.model(0), device, job.config.train.precision).eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = model(x)
            _check_classes(job, output)
            loss = job.task.loss(output, y)
    except FedpurinError:
        raise
    except Exception as problem:  # whatever the user's functions raise
        tokens = "; the inputs are whole numbers, as tokens are: plain features should be floats"
        raise ModelError(
            f"the model or the loss fails with inputs {list(x.shape)} {x.dtype} and targets {list(y.shape)} "
            f"{y.dtype}: {type(problem).__name__}: {' '.join(str(problem).split())}"
            f"{'' if x.is_floating_point() else tokens}"
        ) from problem
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise ModelError(f"the loss must be a tensor of one number for a mini-batch, not {loss!r:.100}")


def _check_classes(job: Job, output: object) -> None:
    if not isinstance(output, Tensor):
        raise ModelError(f"the model gives a {type(output).__name__}; its forward must return one tensor")
    classes = job.class_names
    if job.task.classifies and classes and output.shape[1] < len(classes):
        raise ModelError(
            f"the model gives {output.shape[1]} numbers for a sample, but there are {len(classes)} classes, "
            f"{classes[0]} to {classes[-1]}; number them from 0, and give the last layer an output for each"
        )
