"""A federation small enough for laws: 135 parameters and a few samples."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpurin import wire
from fedpurin.config import Config
from fedpurin.data import Dataset, Split
from fedpurin.engines.hub import Hub
from fedpurin.engines.site import Site, Work
from fedpurin.engines.states import State
from fedpurin.errors import DataError
from fedpurin.job import Job
from fedpurin.layout import Layout
from fedpurin.messages import Message
from fedpurin.methods import METHODS, AnyMethod, Fit, find_method
from fedpurin.methods.fedcac import FedCAC
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.settings import names_of

CLASSES = 3
METHOD_CASES: list[AnyMethod] = [
    *(kind() for kind in METHODS.values()),
    FedPURIN(score="delta"),
    FedPURIN(score="magnitude", tau=1.0),  # every parameter is critical
    FedPURIN(score="random"),
    FedPURIN(hessian=True),
    FedPURIN(gradient_dtype="float16"),
    FedPURIN(exchange_norm="whole"),
    FedPURIN(exchange_norm="selected"),
    FedPURIN(noncritical="local"),
    FedPURIN(average="support"),
    FedPURIN(floor=-1.0),
    FedPURIN(average="support", noncritical="local"),
    FedPURIN(tau=1e-6),  # no parameter is critical
    FedPURIN(score="curvature"),
    FedPURIN(tau=0.8, tau_end=0.2),
    FedCAC(tau=0.1),
    FedCAC(tau=1e-6),
]


def case_name(method: AnyMethod) -> str:
    changed = [f"{k}={v}" for k, v in vars(method).items() if v != getattr(type(method)(), k)]
    return "-".join([method.name, *changed])


def config_name(method: AnyMethod) -> str:
    """What a configuration calls it."""
    kind = type(method)
    return method.name if METHODS.get(method.name) is kind else f"{kind.__module__}:{kind.__name__}"


def tiny_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Parameters of every kind: body 96 + 6, norm 6 + 6, head 18 + 3 (names of modules play no part)."""
    inputs = int(np.prod(shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes)
    )


def plain_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Neither a norm nor a ReLU that dies holds back numbers that grow."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 6), nn.Linear(6, classes))


def only_head(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


def only_two(shape: tuple[int, ...]) -> nn.Module:
    """Two outputs, whatever the number of classes."""
    return only_head(shape, 2)


def tiny_layout() -> Layout:
    return Layout.of(tiny_model((1, 4, 4), CLASSES))


def tiny_dataset(samples: int = 60) -> Dataset:
    draw = torch.Generator().manual_seed(5)
    y = torch.arange(samples) % CLASSES
    # each class is bright in rows of its own, so there is something to learn
    x = torch.randint(0, 120, (samples, 1, 4, 4), generator=draw)
    x[torch.arange(samples), 0, y] += 120
    x = x.to(torch.uint8)
    return Dataset("tiny", [str(c) for c in range(CLASSES)], x, y, x, y)


def four() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The data set as a user's function gives it, for processes that build the job from a configuration."""
    data = tiny_dataset()
    return data.train_x, data.train_y, data.test_x, data.test_y


def four_here() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Data that only the process of TINY_ONLY_PROCESS can read."""
    if os.environ["TINY_ONLY_PROCESS"] != str(os.getpid()):
        raise DataError("the disk of the workers is not mounted")
    return four()


def four_exploding() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same as floats; the samples of the last of COUNTS are far out of range, and labelled wrongly.

    Were they right, a model that learned from the others would have no gradient there to diverge by.
    """
    data, last = tiny_dataset(), sum(COUNTS[:-1])
    x, y = data.train_x.float() / 255, data.train_y.clone()
    test_x = x.clone()
    x[last:] *= 1e30
    y[last:] = (y[last:] + 1) % CLASSES
    return x, y, test_x, data.test_y


COUNTS = (12, 9, 20, 6)


def tiny_config(
    method: str,
    folder: Path,
    counts: tuple[int, ...] = COUNTS,
    dataset: str = "tiny:four",
    **settings: Any,
) -> Config:
    """The configuration of `tiny_job`, with its data named so that any process can load them."""
    job = tiny_job(method, counts, **settings)
    assert job.split is not None
    job.split.save(folder / "split.json")
    data = {"dataset": dataset, "split_file": str(folder / "split.json")}
    return job.config.updated({"data": data})


def tiny_job(method: str = "fedpurin", counts: tuple[int, ...] = COUNTS, **settings: Any) -> Job:
    """Clients with these many samples, one after the other. `settings` are "section__key" pairs."""
    table: dict[str, dict[str, Any]] = {
        "run": {"method": method, "clients": len(counts), "rounds": 6},
        "model": {"name": "tiny:tiny_model"},
        "train": {"epochs": 1, "batch_size": 5},
    }
    if "beta" in names_of(find_method(method)):
        table["method"] = {"beta": 3}
    for name, value in settings.items():
        section, key = name.split("__")
        table.setdefault(section, {})[key] = value
    starts = np.cumsum([0, *counts])
    parts = [np.arange(a, a + n, dtype=np.int64) for a, n in zip(starts, counts, strict=False)]
    dataset = tiny_dataset()
    test = [np.arange(10, dtype=np.int64) for _ in counts]
    return Job(Config().updated(table), (1, 4, 4), dataset.classes, dataset, Split(parts, test))


def job_for(method: AnyMethod, **settings: Any) -> Job:
    options = {f"method__{k}": v for k, v in vars(method).items()}
    if "method__beta" in options:
        options["method__beta"] = 3
    return tiny_job(config_name(method), **(options | settings))


@dataclass
class Federation:
    """Hub and site with bytes between them; remembers what was handed over."""

    job: Job
    states: dict[int, State] = field(default_factory=dict)
    uploads: dict[int, Message] = field(default_factory=dict)  # decoded, of the last round
    handed_over: int = 0  # bytes, both ways

    def __post_init__(self) -> None:
        self.hub, self.site = Hub(self.job), Site(self.job)
        self.states = {c: self.site.initial_state(c) for c in range(self.hub.clients)}

    def reply(self, client: int) -> bytes | None:
        data = self.hub.reply(client)
        self.handed_over += len(data or b"")
        return data

    def work(self, client: int, t: int) -> Work:
        return self.site.work(
            client, t, self.reply(client), self.states[client], self.job.client_data(client)
        )

    def round(self, t: int, clients: list[int] | None = None, lost: tuple[int, ...] = ()) -> dict[str, Any]:
        """Clients work and upload in the given order; those in `lost` work, but nothing arrives."""
        order = list(range(self.hub.clients)) if clients is None else clients
        self.hub.begin(t, order)
        self.uploads = {}
        for client in order:
            done = self.work(client, t)
            if client in lost:
                self.hub.fail(client, "lost")
                continue
            if done.upload is not None:
                self.uploads[client] = self.open_upload(client, t, done.upload)
            self.hub.accept(client, done.upload, done.meta)
            self.handed_over += len(done.upload or b"") + len(done.meta)
            self.states[client] = done.state
        return self.hub.close(t)

    def open_upload(self, client: int, t: int, data: bytes) -> Message:
        selection = self.job.selection
        address = wire.Address(selection.fingerprint, selection.d, t, client, "up")
        last = int(self.states[client]["round"])
        known = (
            [wire.Reference(last, self.states[client]["mask"])]
            if "mask" in self.states[client] and last
            else []
        )
        return wire.decode(data, address, known=known).message

    def merged(self, client: int) -> Tensor:
        """[D]: the client's model after its reply, were it asked now."""
        t = self.hub.aggregated
        finish = self.site.finish(
            client, t, self.reply(client), self.states[client], self.job.client_data(client)
        )
        return finish.state["weights"]


def some_fit(method: AnyMethod, n: int, seed: int = 0, t: int = 2) -> Fit:
    """Local training that never happened: random parameters before and after, some gradients zero."""
    draw = torch.Generator().manual_seed(seed)
    layout = tiny_layout()
    selection = layout.select(method.exchanged(layout))
    start = torch.randn(n, layout.total, generator=draw)
    end = start + 0.1 * torch.randn(n, layout.total, generator=draw)
    gradient = torch.randn(n, layout.total, generator=draw)
    gradient[torch.rand(n, layout.total, generator=draw) < 0.2] = 0.0
    noise = torch.rand(n, selection.d, generator=draw)
    personal = start + 0.1 * torch.randn(n, layout.total, generator=draw)
    squares = torch.rand(n, layout.total, generator=draw)
    return Fit(layout, selection, t, start, end, gradient, lambda: noise, personal, squares)


def row_of(fit: Fit, i: int) -> Fit:
    noise = fit.noise()
    assert fit.personal_nD is not None
    assert fit.squares_nD is not None
    return Fit(
        fit.layout,
        fit.selection,
        fit.t,
        fit.start_nD[i : i + 1],
        fit.end_nD[i : i + 1],
        fit.gradient_nD[i : i + 1],
        lambda: noise[i : i + 1],
        fit.personal_nD[i : i + 1],
        fit.squares_nD[i : i + 1],
    )


def deadly_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Ends every worker process that builds it."""
    if "fedpurin.engines.worker" in sys.orig_argv:
        os._exit(1)
    return tiny_model(shape, classes)
