"""What a caller of `fedpurin.run` passes as Python objects, which no configuration can name.

A configuration says "python" in the places of such objects. They reach the processes of the local engine by
fork and those of Ray by Ray's own serialisation; nothing of them is written to disk but a fingerprint of the
data. To go on with a run that stopped, the same call is made again.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from fedpurin.config import PYTHON, Config
from fedpurin.data.per_client import Clients
from fedpurin.errors import ConfigError, ModelError, ObjectsError
from fedpurin.methods import METHODS, AnyMethod, Method, installed_methods
from fedpurin.task import LOSSES, METRICS, LearningTask, Loss, Metric, Optimiser, named_metric

Model = nn.Module | Callable[..., nn.Module]
AnyMethodForm = str | AnyMethod | type[AnyMethod]


@dataclass(frozen=True, eq=False)
class Given:
    """Each is None where nothing was passed: the configuration then names it."""

    model: Model | None = None
    clients: Clients | None = None
    loss: Loss | None = None
    metric: Metric | None = None
    optimiser: Optimiser | None = None

    def build_model(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """A copy of the module, or what the factory gives for what it takes of shape= and classes=."""
        assert self.model is not None
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        try:
            model = self.model(**_taken(self.model, {"shape": shape, "classes": outputs}))
        except Exception as problem:  # whatever the user's function raises
            raise ModelError(f"the model cannot be made: {type(problem).__name__}: {problem}") from problem
        if not isinstance(model, nn.Module):
            raise ModelError(
                f"the function for the model returned {type(model).__name__}, no torch.nn.Module"
            )
        return model


def _taken(function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a factory must be given: what has a default of its own keeps it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in that does not tell
        return {}
    return {k: v for k, v in offered.items() if k in parameters and parameters[k].default is inspect._empty}


def task_of(config: Config, given: Given | None) -> LearningTask:
    """The functions behind train.loss, train.metric and train.optimiser."""
    settings = config.train
    if settings.loss not in {"cross_entropy", PYTHON} and not (given and given.clients):
        raise ConfigError(
            f"train.loss = {settings.loss!r} is for data passed from Python, fedpurin.run(data=...); "
            "the data sets of a configuration have classes: leave it cross_entropy"
        )
    own = given or Given()
    metric_name = named_metric(settings.loss, settings.metric)
    loss = own.loss if settings.loss == PYTHON else LOSSES[settings.loss]
    metric = own.metric if metric_name == PYTHON else METRICS[metric_name]
    optimiser = own.optimiser if settings.optimiser == PYTHON else None
    for name, value, function in (
        ("loss", settings.loss, loss),
        ("metric", metric_name, metric),
        ("optimiser", settings.optimiser, optimiser),
    ):
        if value == PYTHON and function is None:
            raise only_from_python(f"train.{name}")
    assert loss is not None
    if config.data.validation and metric is not None:
        raise ConfigError(
            f"data.validation chooses models by right answers, which the metric {metric_name} does not "
            "count; leave it 0"
        )
    if config.method.needs_classes and settings.loss != "cross_entropy":
        raise ConfigError(
            f"{config.run.method} learns from probabilities of classes: it needs train.loss = cross_entropy, "
            f"not {settings.loss}; choose another method"
        )
    return LearningTask(loss, metric, optimiser)


def only_from_python(name: str) -> ObjectsError:
    return ObjectsError(
        f"{name} = {PYTHON!r}: this run was given Python objects, which no file holds; "
        "make the same call of fedpurin.run again, with the same out, to go on"
    )


def method_name(method: AnyMethodForm) -> str:
    """How a configuration names a method, its class, or an instance of it."""
    if isinstance(method, str):
        return method
    kind = method if isinstance(method, type) else type(method)
    if not issubclass(kind, Method):
        raise ConfigError(
            f"method = {method!r} is no method: give a name, or a class derived from fedpurin.Method"
        )
    if METHODS.get(kind.name) is kind:
        return kind.name
    path = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in path:
        raise ConfigError(f"the method {kind.__name__} is defined inside a function; move it out of there")
    return next((name for name, home in installed_methods().items() if home == path), path)


def with_method(config: Config, method: AnyMethodForm | None) -> Config:
    if method is None:
        return config
    named = config.updated({"run": {"method": method_name(method)}})
    return named if isinstance(method, str | type) else replace(named, method=method)
