"""Runs from Python: what the command line and `reproduce` call too. The one place that chooses the engine.

    fedpurin.run(model=make_model, data={"Berlin": (x, y), ...}, method="fedpurin", rounds=20)
    fedpurin.compare(model=make_model, data=..., methods=["separate", "fedavg", "fedpurin"], out="runs/mine")

A configuration (TOML, preset) says what a run is; keywords change it. Model, data, loss, metric and optimiser
may be Python objects: they stand in a `Given` beside the configuration, which then says "python" in their
place. With the same `out`, the same call goes on after an interruption, and gives the finished run back once
there is one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, RunError
from fedpurin.files import write_atomic
from fedpurin.given import Given, Model, method_name
from fedpurin.job import Job
from fedpurin.methods import find_method
from fedpurin.options import AnyMethodForm, configured, with_method
from fedpurin.progress import usual_progress
from fedpurin.result import Comparison, Run, load_run
from fedpurin.runs.directory import default_path, models_to_collect, stored_config
from fedpurin.runs.setting import cell_key
from fedpurin.settings import names_of, plain
from fedpurin.task import Loss, Metric, Optimiser

COMPARISON = "compare.json"
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
) -> Run:
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
        config, model, data, rounds, epochs, batch_size, lr, loss, metric, optimiser, seed,
        engine, workers, device, precision,
    )  # fmt: skip
    chosen = with_method(base, method).updated(settings or {})
    path = Path(out) if out is not None else default_path(chosen)
    with _watching(watcher, progress, chosen.method.label) as seen, _guest():
        return start(chosen, path, seen, given)


def start(config: Config, path: Path, watcher: Watcher | None = None, given: Given | None = None) -> Run:
    """Run a configuration in `path`, or what is left of it there."""
    if (path / "config.toml").exists():
        _check_same(config, path, given)
        if (path / "result.json").exists() and not models_to_collect(path):
            return load_run(path, given)
        return resume(path, watcher, given)
    _engine(config, given).run_job(Job.build(config, given), path, watcher)
    return load_run(path, given)


def resume(path: Path | str, watcher: Watcher | None = None, given: Given | None = None) -> Run:
    """Continue a run that stopped half-way."""
    engine = _engine(stored_config(Path(path)), given)
    engine.resume_run(Path(path), watcher, *([given] if given else []))
    return load_run(path, given)


def _check_same(config: Config, path: Path, given: Given | None) -> None:
    """Refuse to go on with another run than the one that is asked for."""
    job = Job.build(config, given)
    same = cell_key(job.config) == cell_key(stored_config(path))
    if given and given.clients:
        same = same and load_run(path).split == given.clients.fingerprint
    if not same:
        raise RunError(f"{path} holds another run (other settings or other data); choose another out")


def _engine(config: Config, given: Given | None = None) -> Any:
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
def _watching(watcher: Watcher | None, progress: bool | None, name: str) -> Iterator[Watcher | None]:
    shown = None if watcher is not None or progress is False else usual_progress(name, always=bool(progress))
    try:
        yield watcher or shown
    finally:
        if shown:
            shown.close()


@contextlib.contextmanager
def _guest() -> Iterator[None]:
    """Leave the caller's random numbers and threads as they were."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def load(path: Path | str) -> Run:
    """A run directory, finished or not."""
    return load_run(path)


@dataclass(frozen=True)
class Plan:
    """A comparison: one configuration for each method and seed, kept in `compare.json` of its folder."""

    configs: dict[str, Config]  # by method
    seeds: list[int]

    @classmethod
    def of(cls, config: Config, methods: Sequence[str], seeds: Sequence[int]) -> Plan:
        """Every method takes those of the configuration's method settings that it has."""
        return cls({name: config.updated({"run": {"method": name}}) for name in methods}, list(seeds))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        file = folder / COMPARISON
        try:
            stored = json.loads(file.read_text())
            return cls({k: Config.from_stored(v) for k, v in stored["configs"].items()}, stored["seeds"])
        except (ValueError, KeyError, TypeError) as problem:
            raise RunError(f"{file} is damaged ({problem}); start the comparison anew") from problem

    def to_json(self) -> str:
        return json.dumps({"configs": {k: c.as_dict() for k, c in self.configs.items()}, "seeds": self.seeds})

    def check(self, folder: Path, given: Given | None = None) -> None:
        """Refuse what cannot run before anything is written: each method once, and each seed's split once."""
        methods: set[str] = set()
        seeds: set[int] = set()
        for path, config in self.runs(folder):
            tried = config.run.method in methods and config.run.seed in seeds
            if tried or (path / "result.json").exists():
                continue
            _engine(config, given).check(Job.build(config, given))
            methods.add(config.run.method)
            seeds.add(config.run.seed)

    def claim(self, folder: Path) -> None:
        """Make the folder this comparison's, unless it is something else's."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / COMPARISON).exists():
                if (folder / COMPARISON).read_text() != self.to_json():
                    raise RunError(f"{folder} holds another comparison; choose another --out")
            elif any(path.suffix != ".tmp" for path in folder.iterdir()):  # left by a killed process
                raise RunError(f"{folder} is not empty and no comparison; choose another --out")
            else:
                write_atomic(folder / COMPARISON, self.to_json())
        except OSError as problem:
            raise RunError(f"cannot write to {folder}: {problem.strerror}") from problem

    def runs(self, folder: Path) -> Iterator[tuple[Path, Config]]:
        """Each run's directory and configuration, seed by seed."""
        short = {method: config.method.name for method, config in self.configs.items()}
        for seed in self.seeds:
            for method, config in self.configs.items():
                clear = short[method] and list(short.values()).count(short[method]) == 1
                name = short[method] if clear else method.replace(":", "-")
                yield folder / f"{name}-s{seed}", config.updated({"run": {"seed": seed}})


def compare(
    config: Config | None = None,
    methods: Sequence[AnyMethodForm] = ("separate", "fedavg", "fedpurin"),
    out: Path | str | None = None,
    seeds: Sequence[int] = (1,),
    watcher: Callable[[Config], Watcher | None] | None = None,
    *,
    model: str | Model | None = None,
    data: Any = None,
    rounds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    loss: str | Loss | None = None,
    metric: str | Metric | None = None,
    optimiser: str | Optimiser | None = None,
    engine: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    settings: Settings | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Run several methods and seeds below `out` (default: a new folder in runs/).

    The keywords are those of `run`. What is finished there is not run again. A setting of [method] goes to
    every method that has it.
    """
    base, given = configured(
        config, model, data, rounds, epochs, batch_size, lr, loss, metric, optimiser, None,
        engine, workers, device, precision,
    )  # fmt: skip
    own = dict((settings or {}).get("method", {}))
    check_settings_are_used(list(own), [method_name(method) for method in methods])
    base = base.updated(
        {section: values for section, values in (settings or {}).items() if section != "method"}
    )
    configs: dict[str, Config] = {}
    for method in methods:
        chosen = with_method(base, method)
        fitting = {key: value for key, value in own.items() if key in names_of(type(chosen.method))}
        chosen = chosen.updated({"method": fitting})
        configs[_unused_key(configs, chosen)] = chosen
    folder = Path(out) if out is not None else _new_folder(Path("runs/compare"))
    return compare_plan(Plan(configs, list(seeds)), folder, watcher, given, progress)


def _unused_key(configs: Mapping[str, Config], config: Config) -> str:
    """The method's name; with its settings where two are of one method."""
    name = config.run.method
    if name in configs:
        standard = type(config.method)()
        own = {k: v for k, v in plain(config.method).items() if v != getattr(standard, k)}
        name += "".join(f"-{key}{value}" for key, value in own.items())
    if name in configs:
        raise ConfigError(f"the method {name} is named twice, with the same settings")
    return name


def _new_folder(path: Path) -> Path:
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate


def compare_plan(
    plan: Plan,
    folder: Path,
    watcher: Callable[[Config], Watcher | None] | None = None,
    given: Given | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Carry out a comparison, or the rest of it. `watcher` gives one for each run."""
    plan.check(folder, given)
    plan.claim(folder)
    results = []
    for path, config in plan.runs(folder):
        if (path / "result.json").exists() and given is None and not models_to_collect(path):
            results.append(load_run(path))
            continue
        own = watcher(config) if watcher else None
        with _watching(own, progress if watcher is None else False, config.method.label) as seen, _guest():
            results.append(start(config, path, seen, given))
    return Comparison(results)


def check_settings_are_used(settings: Sequence[str], methods: Sequence[str]) -> None:
    """In a comparison a setting of [method] must belong to at least one of the methods."""
    accepted = {name: names_of(find_method(name)) for name in methods}
    for key in settings:
        if not any(key in names for names in accepted.values()):
            said = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in accepted.items())
            raise ConfigError(f"no method of this comparison has a setting method.{key} ({said})")
