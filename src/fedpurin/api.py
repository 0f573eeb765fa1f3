"""Runs from Python: what the command line and `reproduce` call too. The one place that chooses the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, RunError
from fedpurin.files import write_atomic
from fedpurin.job import Job
from fedpurin.methods import find_method
from fedpurin.result import Run, load_run
from fedpurin.runs.directory import default_path, stored_config
from fedpurin.settings import names_of

COMPARISON = "compare.json"


def run(config: Config, out: Path | str | None = None, watcher: Watcher | None = None) -> Run:
    """Run one method; `out` is its run directory (default: a new one in runs/)."""
    path = Path(out) if out is not None else default_path(config)
    _engine(config).run_job(Job.build(config), path, watcher)
    return load_run(path)


def resume(path: Path | str, watcher: Watcher | None = None) -> Run:
    """Continue a run that stopped half-way."""
    _engine(stored_config(Path(path))).resume_run(Path(path), watcher)
    return load_run(path)


def _engine(config: Config) -> Any:
    """The module with `check`, `run_job` and `resume_run`."""
    if config.run.engine == "flower":
        from fedpurin.federation import engine

        return engine
    return simulate


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

    def check(self, folder: Path) -> None:
        """Refuse what cannot run before anything is written: each method once, and each seed's split once."""
        methods: set[str] = set()
        seeds: set[int] = set()
        for path, config in self.runs(folder):
            tried = config.run.method in methods and config.run.seed in seeds
            if tried or (path / "result.json").exists():
                continue
            _engine(config).check(Job.build(config))
            methods.add(config.run.method)
            seeds.add(config.run.seed)

    def claim(self, folder: Path) -> None:
        """Make the folder this comparison's, unless it is something else's."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / COMPARISON).exists():
                if (folder / COMPARISON).read_text() != self.to_json():
                    raise RunError(f"{folder} holds another comparison; choose another --out")
            elif any(folder.iterdir()):
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
    config: Config,
    methods: Sequence[str],
    out: Path | str,
    seeds: Sequence[int] = (1,),
    watcher: Callable[[Config], Watcher | None] = lambda config: None,
) -> list[Run]:
    """Run several methods and seeds below `out`; what is finished there is not run again."""
    return compare_plan(Plan.of(config, methods, seeds), Path(out), watcher)


def compare_plan(
    plan: Plan, folder: Path, watcher: Callable[[Config], Watcher | None] = lambda config: None
) -> list[Run]:
    """Carry out a comparison, or the rest of it. `watcher` gives one for each run."""
    plan.check(folder)
    plan.claim(folder)
    results = []
    for path, config in plan.runs(folder):
        if (path / "result.json").exists():
            results.append(load_run(path))
        elif (path / "config.toml").exists():
            results.append(resume(path, watcher(config)))
        else:
            results.append(run(config, path, watcher(config)))
    return results


def check_settings_are_used(settings: Sequence[str], methods: Sequence[str]) -> None:
    """In a comparison a setting of [method] must belong to at least one of the methods."""
    accepted = {name: names_of(find_method(name)) for name in methods}
    for key in settings:
        if not any(key in names for names in accepted.values()):
            said = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in accepted.items())
            raise ConfigError(f"no method of this comparison has a setting method.{key} ({said})")
