"""A configuration made concrete: method, model layout, data and who holds what.

Every process of every engine builds the same job from the same configuration. What the user passed as Python
objects, `given`, comes beside it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpurin import data, models
from fedpurin.config import PYTHON, Config
from fedpurin.data.split import hold_out
from fedpurin.errors import ConfigError
from fedpurin.given import Given, only_from_python, task_of
from fedpurin.layout import Layout, Selection, read_parameters
from fedpurin.methods import AnyMethod
from fedpurin.task import LearningTask
from fedpurin.train import ClientData, generator, key


@dataclass(frozen=True)
class Job:
    config: Config
    shape: tuple[int, ...]  # of one sample
    class_names: list[str]
    dataset: data.Dataset | None  # None where every site brings its own data
    split: data.Split | None
    given: Given | None = field(default=None, compare=False)

    @classmethod
    def build(cls, config: Config, given: Given | None = None) -> Job:
        if given is not None and (clients := given.clients) is not None:
            config = replace(config, run=replace(config.run, clients=len(clients)))
            return cls(config, clients.shape, list(clients.classes), None, None, given)
        if config.data.dataset == PYTHON:
            raise only_from_python("data.dataset")
        if config.data.dataset == "own":
            return cls._for_own_data(config)
        dataset = data.load(config.data.dataset, Path(config.data.dir) if config.data.dir else None)
        split = _split(config, dataset)
        if split.clients != config.run.clients:
            config = replace(config, run=replace(config.run, clients=split.clients))
        return cls(config, tuple(dataset.train_x.shape[1:]), dataset.classes, dataset, split, given)

    @classmethod
    def _for_own_data(cls, config: Config) -> Job:
        shape, names = config.data.shape, config.data.class_names
        names = names or tuple(str(c) for c in range(config.data.classes))
        if not shape or len(names) < 2 or config.data.classes not in (0, len(names)):
            raise ConfigError(
                "data.dataset = own needs data.shape (e.g. [3, 32, 32]) and its classes, at least 2: "
                "data.class_names (e.g. [cat, dog]) or their number data.classes; "
                f"not {list(shape)}, {list(names)} and {config.data.classes}"
            )
        return cls(config, shape, list(names), None, None)

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.model(0), self.config.model.head or None)

    @cached_property
    def selection(self) -> Selection:
        return self.layout.select(self.config.method.exchanged(self.layout))

    @cached_property
    def task(self) -> LearningTask:
        return task_of(self.config, self.given)

    @cached_property
    def method(self) -> AnyMethod:
        """The method, with the loss of this run's task."""
        if self.task.classifies:
            return self.config.method
        method = copy.copy(self.config.method)
        object.__setattr__(method, "criterion", self.task.loss)  # frozen, for everybody else
        return method

    @property
    def only_here(self) -> str:
        """What exists in this process alone, so that another one can get it by fork only; "" if nothing."""
        names = {
            "model.name": self.config.model.name,
            "data.dataset": self.config.data.dataset,
            "run.method": self.config.run.method,
        }
        mine = [f"{key} = {value!r}" for key, value in names.items() if value.startswith("__main__:")]
        return ", ".join([*mine, *(["the objects passed from Python"] if self.given else [])])

    def model(self, client: int) -> nn.Module:
        """A new model with this client's own initial values."""
        seed = key(self.config.run.model_seed_used, "initial model", client)
        name, given = self.config.model.name, self.given
        if name != PYTHON:
            model = models.build(name, self.shape, self.outputs, seed)
        elif given is None or given.model is None:
            raise only_from_python("model.name")
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = given.build_model(self.shape, self.outputs)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    @property
    def outputs(self) -> int:
        """Classes, or numbers of a target."""
        return self._given_clients.outputs if self._given_clients else len(self.class_names)

    def common_start(self) -> Tensor:
        """[d]: the exchanged parameters as every client starts with them: those of client 0."""
        return self._common_start.clone()

    @cached_property
    def _common_start(self) -> Tensor:
        return self.selection.take(read_parameters(self.model(0))[None])[0]

    def check_data(self) -> None:
        """A simulation needs one data set that it can divide, or the data of every client."""
        if self.split is None and not self._given_clients:
            raise ConfigError(
                'data.dataset = "own" means that every site brings its own data: use fedpurin federation '
                "(docs/federation.md), or name one data set that can be divided among clients"
            )

    @property
    def _given_clients(self) -> data.Clients | None:
        return self.given.clients if self.given else None

    def client_data(self, client: int) -> ClientData:
        if self._given_clients:
            return self.own_data(self._given_clients.parts[client], client)
        d, split = self._divided
        train, test = self.training[client], split.test[client]
        data = ClientData(d.train_x[train], d.train_y[train], d.test_x[test], d.test_y[test])
        if not self.validation:
            return data
        held = self.validation[client]
        return replace(data, validation=(d.train_x[held], d.train_y[held]))

    @property
    def _divided(self) -> tuple[data.Dataset, data.Split]:
        assert self.dataset is not None
        assert self.split is not None
        return self.dataset, self.split

    def own_data(self, data: ClientData, client: int) -> ClientData:
        """What a site brings itself, with its validation samples held out."""
        share, count = self.config.data.validation, len(data.train_y)
        if not share:
            return data
        train, held = hold_out(np.arange(count), share, self._rank(count, client), client)
        x, y = data.train_x, data.train_y
        return replace(data, train_x=x[train], train_y=y[train], validation=(x[held], y[held]))

    def _rank(self, samples: int, *whose: int) -> np.ndarray:
        """[samples]: who comes first into validation, by the seed of the split."""
        draw = generator(self.config.run.split_seed_used, "validation", *whose)
        return torch.randperm(samples, generator=draw).numpy()

    @cached_property
    def _sides(self) -> list[tuple[np.ndarray, np.ndarray]]:
        dataset, split = self._divided
        share, rank = self.config.data.validation, self._rank(len(dataset.train_y))
        return [hold_out(indices, share, rank, client) for client, indices in enumerate(split.train)]

    @property
    def training(self) -> list[np.ndarray]:
        """The positions that each client trains on: all of its samples but those held out."""
        if not self.config.data.validation:
            return self._divided[1].train
        return [train for train, _ in self._sides]

    @property
    def validation(self) -> list[np.ndarray]:
        """The positions that each client holds out; an empty list where there is no validation."""
        return [held for _, held in self._sides] if self.config.data.validation else []

    def train_samples(self) -> list[int]:
        if self._given_clients:
            return [len(self.client_data(client).train_y) for client in range(len(self._given_clients))]
        return [len(indices) for indices in self.training]

    def describe_clients(self) -> dict[str, Any]:
        """For clients.json: how many samples of which class each client holds."""
        if self._given_clients:
            return self._describe_given(self._given_clients)
        if self.dataset is None or self.split is None:
            return {"classes": self.class_names}
        held = {"validation_samples": [len(i) for i in self.validation]} if self.validation else {}
        return {
            "classes": self.class_names,
            "train_samples": self.train_samples(),
            **held,
            "test_samples": [len(i) for i in self.split.test],
            "train_counts": self._counts(self.dataset.train_y, self.training),
            "test_counts": self._counts(self.dataset.test_y, self.split.test),
            "split_fingerprint": self.split.fingerprint,
        }

    def _counts(self, y: Tensor, parts: list[np.ndarray]) -> list[list[int]]:
        """Samples by client and class."""
        return [data.class_counts(y, indices, len(self.class_names)).tolist() for indices in parts]

    def _describe_given(self, clients: data.Clients) -> dict[str, Any]:
        counts = clients.counts() if clients.classes else None
        return {
            "classes": list(clients.classes),
            "names": list(clients.names),
            "train_samples": [len(part.train_y) for part in clients.parts],
            "test_samples": [len(part.test_y) for part in clients.parts],
            **({} if counts is None else {"train_counts": counts[0], "test_counts": counts[1]}),
            "split_fingerprint": clients.fingerprint,
        }

    def describe_layout(self) -> dict[str, Any]:
        exchanged = {layer.name for layer in self.selection.layers}
        return {
            "parameters": self.layout.total,
            "exchanged": self.selection.d,
            "fingerprint": self.selection.fingerprint.hex(),
            "layers": [
                {
                    "name": layer.name,
                    "shape": list(layer.shape),
                    "size": layer.size,
                    "kind": layer.kind,
                    "exchanged": layer.name in exchanged,
                }
                for layer in self.layout.layers
            ],
        }


def _split(config: Config, dataset: data.Dataset) -> data.Split:
    if config.data.split_file:
        split = data.Split.load(Path(config.data.split_file))
        split.check_fits(len(dataset.train_y), len(dataset.test_y))
        return split
    return data.make_split(
        config.data.partition,
        dataset.train_y.numpy(),
        dataset.test_y.numpy(),
        clients=config.run.clients,
        seed=config.run.split_seed_used,
        train_samples=config.data.train_samples,
        test_samples=config.data.test_samples,
        alpha=config.data.alpha,
        classes_per_client=config.data.classes_per_client,
        num_classes=len(dataset.classes),
    )
