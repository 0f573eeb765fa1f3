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
from pathlib import Path
from typing import Any

import torch

from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, RunError
from fedpurin.given import Given, Model
from fedpurin.job import Job
from fedpurin.options import AnyMethodForm, configured, with_method
from fedpurin.progress import usual_progress
from fedpurin.result import RunResult, load_result
from fedpurin.runs.directory import default_path, models_to_collect, stored_config
from fedpurin.runs.same_setting import cell_key
from fedpurin.task import Loss, Metric, Optimiser

Settings = Mapping[str, Mapping[str, Any]]


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
