"""Runs from Python: the same as the command line, returning results to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.engines import loop
from fedpurin.engines.loop import Watcher
from fedpurin.job import Job
from fedpurin.report.load import Run, load_run
from fedpurin.runs import default_path, stored_config


def run(config: Config, out: Path | str | None = None, watcher: Watcher | None = None) -> Run:
    """Run one method; `out` is its run directory (default: a new one in runs/)."""
    path = Path(out) if out is not None else default_path(config)
    _engine(config).run_job(Job.build(config), path, watcher)
    return load_run(path)


def compare(
    config: Config, methods: Sequence[str], out: Path | str, seeds: Sequence[int] = (1,)
) -> list[Run]:
    """Run several methods and seeds below `out`; what is finished there is not run again."""
    results = []
    for seed in seeds:
        for method in methods:
            path = Path(out) / f"{method}-s{seed}"
            if (path / "result.json").exists():
                results.append(load_run(path))
            elif (path / "config.toml").exists():
                results.append(resume(path))
            else:
                results.append(run(replace(config, run=replace(config.run, method=method, seed=seed)), path))
    return results


def resume(path: Path | str, watcher: Watcher | None = None) -> Run:
    """Continue a run that stopped half-way."""
    _engine(stored_config(Path(path))).resume_run(Path(path), watcher)
    return load_run(path)


def _engine(config: Config) -> Any:
    """The module with `run_job` and `resume_run`."""
    if config.run.engine == "flower":
        from fedpurin.engines.flower import engine

        return engine
    return loop


def load(path: Path | str) -> Run:
    """A run directory, finished or not."""
    return load_run(path)
