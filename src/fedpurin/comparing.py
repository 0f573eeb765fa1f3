"""Several methods and seeds side by side, in one folder: `fedpurin.compare` and `fedpurin compare`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from fedpurin.api import RunOptions, Settings, configured, engine_of, guest, start, with_progress
from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, RunError
from fedpurin.files import LARGEST_CONFIGURATION, read_bounded, unused, write_atomic
from fedpurin.given import AnyMethodForm, Given, method_name, with_method
from fedpurin.job import Job
from fedpurin.methods import find_method
from fedpurin.result import Comparison, load_result
from fedpurin.runs.parsing import read_json
from fedpurin.runs.places import models_to_collect
from fedpurin.runs.shapes import ANY_TABLE, WHOLE, Each, Needed
from fedpurin.settings import names_of, plain

COMPARISON = "compare.json"
STORED = {"configs": Needed(Each(Each(ANY_TABLE))), "seeds": Needed([WHOLE])}


@dataclass(frozen=True)
class Plan:
    """A comparison: one configuration for each method and seed, kept in `compare.json` of its folder."""

    configs: dict[str, Config]  # by method
    seeds: list[int]

    @classmethod
    def read(cls, folder: Path) -> Plan:
        file, remedy = folder / COMPARISON, "start the comparison anew"
        stored = read_json(file, STORED, remedy)
        if not stored or not stored["configs"] or not stored["seeds"]:
            raise RunError(f"{file} names no runs; {remedy}")
        for method in stored["configs"]:
            if re.search(r"[/\\\0]", method):  # its runs would lie somewhere else
                raise RunError(f"{file} is damaged: no method has the name {method!r}; {remedy}")
        try:
            configs = {k: Config.from_stored(v) for k, v in stored["configs"].items()}
        except ConfigError as problem:
            raise RunError(f"{file} is damaged ({problem}); {remedy}") from problem
        return cls(configs, stored["seeds"])

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
            engine_of(config, given).check(Job.build(config, given))
            methods.add(config.run.method)
            seeds.add(config.run.seed)

    def claim(self, folder: Path) -> None:
        claim(folder, COMPARISON, self.to_json(), "comparison")

    def runs(self, folder: Path) -> Iterator[tuple[Path, Config]]:
        """Each run's directory and configuration, seed by seed."""
        short = {method: config.method.name for method, config in self.configs.items()}
        for seed in self.seeds:
            for method, config in self.configs.items():
                clear = short[method] and list(short.values()).count(short[method]) == 1
                name = short[method] if clear else method.replace(":", "-")
                yield folder / f"{name}-s{seed}", config.updated({"run": {"seed": seed}})


def claim(folder: Path, name: str, text: str, what: str, other: str = "") -> None:
    """Make the folder that of the work that `text` describes, in the file `name`, unless it is another's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / name).exists():
            if read_bounded(folder / name, LARGEST_CONFIGURATION) != text.encode():
                raise RunError(f"{folder} holds another {other or what}; choose another --out")
        elif any(path.suffix != ".tmp" for path in folder.iterdir()):  # left by a killed process
            raise RunError(f"{folder} is not empty and no {what}; choose another --out")
        else:
            write_atomic(folder / name, text)
    except OSError as problem:
        raise RunError(f"cannot use {folder} ({name}: {problem.strerror}); choose another --out") from problem


def compare(
    config: Config | None = None,
    methods: Sequence[AnyMethodForm] = ("separate", "fedavg", "fedpurin"),
    out: Path | str | None = None,
    seeds: Sequence[int] = (1,),
    watcher: Callable[[Config], Watcher | None] | None = None,
    *,
    settings: Settings | None = None,
    progress: bool | None = None,
    **options: Unpack[RunOptions],
) -> Comparison:
    """Run several methods and seeds below `out` (default: a new folder in runs/).

    The other keywords are those of `run`: model, data, rounds, ... What is finished there is not run again. A
    setting of [method] goes to every method that has it.
    """
    base, given = configured(config, None, **options)
    common = dict(settings or {})
    own = dict(common.pop("method", {}))
    check_settings_are_used(list(own), [method_name(method) for method in methods])
    base = base.updated(common)
    configs: dict[str, Config] = {}
    for method in methods:
        chosen = with_method(base, method)
        fitting = {key: value for key, value in own.items() if key in names_of(type(chosen.method))}
        chosen = chosen.updated({"method": fitting})
        configs[_unused_key(configs, chosen)] = chosen
    folder = Path(out) if out is not None else unused(Path("runs/compare"))
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
            results.append(load_result(path))
            continue
        own = watcher(config) if watcher else None
        with with_progress(own, progress if watcher is None else False, config.method.label) as seen, guest():
            results.append(start(config, path, seen, given))
    return Comparison(results)


def check_settings_are_used(settings: Sequence[str], methods: Sequence[str]) -> None:
    """In a comparison a setting of [method] must belong to at least one of the methods."""
    accepted = {name: names_of(find_method(name)) for name in methods}
    for key in settings:
        if not any(key in names for names in accepted.values()):
            said = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in accepted.items())
            raise ConfigError(f"no method of this comparison has a setting method.{key} ({said})")
