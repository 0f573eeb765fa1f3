"""A run from Python: what the command line and `reproduce` call too. The one place that chooses the engine.

    fedpurin.run(model=make_model, data={"Berlin": (x, y), ...}, method="fedpurin", rounds=20)
    fedpurin.compare(model=make_model, data=..., methods=["separate", "fedavg", "fedpurin"], out="runs/mine")

A configuration (TOML, preset) says what a run is; keywords change it. Model, data, loss, metric and optimiser
may be Python objects: they stand in a `Given` beside the configuration, which then says "python" in their
place. With the same `out`, the same call goes on after an interruption, and gives the finished run back once
there is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch

from fedpurin.config import PYTHON, Config
from fedpurin.data import clients
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, RunError
from fedpurin.given import AnyMethodForm, Given, Model, with_method
from fedpurin.job import Job
from fedpurin.progress import usual_progress
from fedpurin.result import RunResult, load_result
from fedpurin.runs.directory import stored_config
from fedpurin.runs.places import default_path, models_to_collect
from fedpurin.runs.same_setting import cell_key
from fedpurin.task import Loss, Metric, Optimiser

Settings = Mapping[str, Mapping[str, Any]]


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


def run(
    config: Config | None = None,
    out: Path | str | None = None,
    watcher: Watcher | None = None,
    *,
    model: str | Model | None = None,
    data: Any = None,
    method: AnyMethodForm | None = None,
    rounds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    loss: str | Loss | None = None,
    metric: str | Metric | None = None,
    optimiser: str | Optimiser | None = None,
    seed: int | None = None,
    engine: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    settings: Settings | None = None,
    progress: bool | None = None,
) -> RunResult:
    """Run one method; `out` is its run directory (default: a new one in runs/).

    model      a torch module (all start from a copy), a function or class that makes one, or a name
    data       the clients' data: a dict of client -> (x, y), or what `fedpurin.clients` takes or gives
    method     a name, a class derived from `fedpurin.Method`, or an instance with its settings
    loss       cross_entropy, mse, bce, or a function of outputs and targets; default: as targets suggest
    metric     accuracy, r2, label_accuracy, or a function of outputs and targets, the higher the better
    optimiser  sgd, adam, adamw, or a function of the parameters; new in every round
    engine     local (worker processes), inline (this process alone) or ray
    device     auto, cpu, cuda or mps; precision: float32, or bfloat16 (mixed)
    settings   any other, as in a configuration file: {"method": {"tau": 0.3}, "train": {"momentum": 0}}
    progress   by default in a terminal and in a notebook

    Where `out` holds the same run already, it is continued, or given back if it is finished.
    """
    base, given = configured(
        config, seed, model=model, data=data, rounds=rounds, epochs=epochs, batch_size=batch_size, lr=lr,
        loss=loss, metric=metric, optimiser=optimiser, engine=engine, workers=workers,
        device=device, precision=precision,
    )  # fmt: skip
    chosen = with_method(base, method).updated(settings or {})
    path = Path(out) if out is not None else default_path(chosen)
    with with_progress(watcher, progress, chosen.method.label) as seen, guest():
        return start(chosen, path, seen, given)


def configured(
    config: Config | None, seed: int | None, **options: Unpack[RunOptions]
) -> tuple[Config, Given | None]:
    """The configuration with what the keywords say, and the objects among them."""
    if unknown := set(options) - set(RunOptions.__annotations__):
        accepted = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"unknown keyword {', '.join(sorted(unknown))}; there are {accepted}")
    data, rounds = options.get("data"), options.get("rounds")
    held = None if data is None else clients(data)
    things = _those(options, "model", "loss", "metric", "optimiser")
    if held is not None and things["loss"] is None:
        things["loss"] = held.usual_loss
    given = Given(clients=held, **{k: v for k, v in things.items() if not isinstance(v, str)})
    if held is not None and config is None and rounds is not None:
        config = _half_of(rounds)
    names = {k: v if v is None or isinstance(v, str) else PYTHON for k, v in things.items()}
    table: dict[str, dict[str, Any]] = {
        "run": {"seed": seed, **_those(options, "rounds", "engine", "workers", "device")},
        "data": {"dataset": None if held is None else PYTHON},
        "model": {"name": names.pop("model")},
        "train": {**_those(options, "epochs", "batch_size", "lr", "precision"), **names},
    }
    said = {s: {k: v for k, v in values.items() if v is not None} for s, values in table.items()}
    any_given = any(value is not None for value in vars(given).values())
    return (config or Config()).updated(said), given if any_given else None


def _those(options: RunOptions, *names: str) -> dict[str, Any]:
    return {name: options.get(name) for name in names}


def _half_of(rounds: int) -> Config:
    """The usual configuration, with critical parameters shared in the first half of the rounds."""
    usual = {"beta": max(1, rounds // 2)}
    standard = Config()
    return replace(standard, usual=usual, method=replace(standard.method, **usual))


def start(
    config: Config, path: Path, watcher: Watcher | None = None, given: Given | None = None
) -> RunResult:
    """Run a configuration in `path`, or what is left of it there."""
    if (path / "config.toml").exists():
        _check_same(config, path, given)
        if (path / "result.json").exists() and not models_to_collect(path):
            return load_result(path, given)
        return resume(path, watcher, given)
    engine_of(config, given).run_job(Job.build(config, given), path, watcher)
    return load_result(path, given)


def resume(path: Path | str, watcher: Watcher | None = None, given: Given | None = None) -> RunResult:
    """Continue a run that stopped half-way."""
    engine = engine_of(stored_config(Path(path)), given)
    engine.resume_run(Path(path), watcher, *([given] if given else []))
    return load_result(path, given)


def _check_same(config: Config, path: Path, given: Given | None) -> None:
    """Refuse to go on with another run than the one that is asked for."""
    job = Job.build(config, given)
    same = cell_key(job.config) == cell_key(stored_config(path))
    if given and given.clients:
        same = same and load_result(path).split == given.clients.fingerprint
    if not same:
        raise RunError(f"{path} holds another run (other settings or other data); choose another out")


def engine_of(config: Config, given: Given | None = None) -> Any:
    """The module with `check`, `run_job` and `resume_run`."""
    if config.run.engine == "flower":
        if given is not None:
            raise ConfigError(
                "engine = flower builds model and data at each site from a configuration, so it takes no "
                "Python objects; name them as package.module:function, or use engine = local, inline or ray"
            )
        from fedpurin.federation import engine

        return engine
    return simulate


@contextlib.contextmanager
def with_progress(watcher: Watcher | None, progress: bool | None, name: str) -> Iterator[Watcher | None]:
    shown = None if watcher is not None or progress is False else usual_progress(name, always=bool(progress))
    try:
        yield watcher or shown
    finally:
        if shown:
            shown.close()


@contextlib.contextmanager
def guest() -> Iterator[None]:
    """Leave the caller's random numbers and threads as they were."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def load(path: Path | str) -> RunResult:
    """A run directory, finished or not."""
    return load_result(path)
