"""The keywords of `fedpurin.run` and `fedpurin.compare`: a configuration, and Python objects beside it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypedDict, Unpack

from fedpurin.config import PYTHON, Config
from fedpurin.data import clients
from fedpurin.given import Given, Model, method_name
from fedpurin.methods import AnyMethod
from fedpurin.task import Loss, Metric, Optimiser

AnyMethodForm = str | AnyMethod | type[AnyMethod]


class RunOptions(TypedDict, total=False):
    """What `fedpurin.run` and `fedpurin.compare` both take; the docstring of `run` says what each means."""

    model: str | Model | None
    data: Any
    rounds: int | None
    epochs: int | None
    batch_size: int | None
    lr: float | None
    loss: str | Loss | None
    metric: str | Metric | None
    optimiser: str | Optimiser | None
    engine: str | None
    workers: int | None
    device: str | None
    precision: str | None


def configured(
    config: Config | None, seed: int | None, **options: Unpack[RunOptions]
) -> tuple[Config, Given | None]:
    """The configuration with what the keywords say, and the objects among them."""
    if unknown := set(options) - set(RunOptions.__annotations__):
        accepted = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"unknown keyword {', '.join(sorted(unknown))}; there are {accepted}")
    model, data, rounds = options.get("model"), options.get("data"), options.get("rounds")
    loss, metric, optimiser = options.get("loss"), options.get("metric"), options.get("optimiser")
    held = None if data is None else clients(data)
    if held is not None and loss is None:
        loss = held.usual_loss
    given = Given(
        model=None if isinstance(model, str) else model,
        clients=held,
        loss=None if isinstance(loss, str) else loss,
        metric=None if isinstance(metric, str) else metric,
        optimiser=None if isinstance(optimiser, str) else optimiser,
    )
    if held is not None and config is None and rounds is not None:
        config = _half_of(rounds)
    table: dict[str, dict[str, Any]] = {
        "run": {"rounds": rounds, "seed": seed, **_those(options, "engine", "workers", "device")},
        "data": {"dataset": None if held is None else PYTHON},
        "model": {"name": _name(model)},
        "train": {
            **_those(options, "epochs", "batch_size", "lr", "precision"),
            "loss": _name(loss),
            "metric": _name(metric),
            "optimiser": _name(optimiser),
        },
    }
    said = {s: {k: v for k, v in values.items() if v is not None} for s, values in table.items()}
    any_given = any(getattr(given, f.name) is not None for f in fields(given))
    return (config or Config()).updated(said), given if any_given else None


def _those(options: RunOptions, *names: str) -> dict[str, Any]:
    return {name: options.get(name) for name in names}


def _name(thing: Any) -> str | None:
    return thing if thing is None or isinstance(thing, str) else PYTHON


def _half_of(rounds: int) -> Config:
    """The usual configuration, with critical parameters shared in the first half of the rounds."""
    usual = {"beta": max(1, rounds // 2)}
    standard = Config()
    return replace(standard, usual=usual, method=replace(standard.method, **usual))


def with_method(config: Config, method: AnyMethodForm | None) -> Config:
    if method is None:
        return config
    named = config.updated({"run": {"method": method_name(method)}})
    return named if isinstance(method, str | type) else replace(named, method=method)
