"""The plan with its estimate, and the runs: finished cells are skipped, interrupted ones continue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.report.load import load_run
from fedpurin.reproduce.cells import Cell, cell_key
from fedpurin.reproduce.record import coverage_record, run_record
from fedpurin.reproduce.store import Store

# Seconds of one core per sample and epoch, where the store knows nothing better.
COST = {"resnet8": 1.8e-3, "resnet10": 2.8e-3, "cnn": 1.5e-4, "mlp": 5e-5}
UNKNOWN_COST = 2e-3


@dataclass(frozen=True)
class Step:
    """A cell that is not in the store yet."""

    cell: Cell
    path: Path
    done: int  # rounds that its run directory already has
    seconds: float  # what is left, by estimate


def plan(
    cells: Sequence[Cell], store: Store, runs: Path, workers: int, *, coverage: bool = False
) -> list[Step]:
    """What is left to run, each configuration once; with `coverage` also what lacks those counts."""
    steps: dict[str, Step] = {}
    for cell in cells:
        if cell.key in steps or (
            store.finished(cell.config) and (not coverage or _is_counted(cell.config, store))
        ):
            continue
        path = runs / cell.key
        done = load_run(path).rounds if (path / "config.toml").exists() else 0
        steps[cell.key] = Step(cell, path, done, estimate(cell.config, done, store, workers))
    return list(steps.values())


def _is_counted(config: Config, store: Store) -> bool:
    known = store.get("coverage", config)
    return known is not None and int(known["rounds"]) >= config.run.rounds


def estimate(config: Config, done: int, store: Store, workers: int) -> float:
    """Wall-clock seconds of the rounds that are left."""
    per_sample = _measured_cost(config, store) or COST.get(config.model.name, UNKNOWN_COST)
    samples = config.run.clients * config.run.participation * config.data.train_samples
    rounds = config.run.rounds - done
    return per_sample * samples * config.train.epochs * rounds / max(1, workers or os.cpu_count() or 1)


def _measured_cost(config: Config, store: Store) -> float | None:
    """From finished cells of the same model on the same data."""
    seconds = work = 0.0
    for record in store.records():
        other = record.config
        if (other.model.name, other.data.dataset) != (config.model.name, config.data.dataset):
            continue
        seconds += record.line["seconds"].get("train", 0.0)
        work += other.run.clients * other.data.train_samples * other.train.epochs * record.done
    return seconds / work if work and seconds else None


def clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_plan(steps: Sequence[Step], total: int, console: Any) -> None:
    console.print(
        f"{total} cell{'s' if total != 1 else ''}, {total - len(steps)} of them in the store already."
    )
    if not steps:
        return
    for step in steps:
        state = f"continues after round {step.done}" if step.done else "new"
        console.print(
            f"  {step.path.name}: {step.cell.label}, {state}, about {clock(step.seconds)}", highlight=False
        )
    console.print(f"{len(steps)} to run, about {clock(sum(s.seconds for s in steps))} in all.")


def execute(
    steps: Sequence[Step],
    store: Store,
    console: Any,
    *,
    workers: int = 0,
    data_dir: str = "",
    coverage: bool = False,
) -> None:
    """Run every step; its record is in the store before the next one starts."""
    for number, step in enumerate(steps, start=1):
        console.print(f"[{number}/{len(steps)}] {step.path.name}", markup=False, highlight=False)
        if not (step.path / "result.json").exists():
            _run(step, workers, data_dir, console)
        add_run(store, step.path, coverage=coverage)


def _run(step: Step, workers: int, data_dir: str, console: Any) -> None:
    from fedpurin.engines.loop import resume_run, run_job
    from fedpurin.job import Job

    watcher = _watcher(console)
    if (step.path / "config.toml").exists():
        resume_run(step.path, watcher)
        return
    config = step.cell.config
    config = replace(
        config, run=replace(config.run, workers=workers), data=replace(config.data, dir=data_dir)
    )
    assert cell_key(config) == step.cell.key
    run_job(Job.build(config), step.path, watcher)


def _watcher(console: Any) -> Any:
    from fedpurin.engines.loop import Watcher

    class Progress(Watcher):
        def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
            values = (record.get("upload") or {}).get("accuracy") or (record.get("trained") or {}).get(
                "accuracy"
            )
            known = [v for v in values or [] if v is not None]
            if known:
                console.print(
                    f"  round {record['round']}: {100 * sum(known) / len(known):.1f} %, "
                    f"{record['seconds']['round']:.1f} s",
                    highlight=False,
                )

    return Progress()


def add_run(store: Store, path: Path, *, partial: bool = False, coverage: bool = False) -> str | None:
    """Put a run directory into the store. Returns its key, or None when the store has it in full already."""
    line = run_record(path, partial=partial)
    before = store.get("runs", Config().updated(line["config"]))
    news = (
        before is None
        or (not before["complete"] and line["done"] > before["done"])
        or (line["complete"] and not before["complete"])
    )
    if news:
        store.append("runs", line)
    if coverage:
        counts, known = coverage_record(path), store.get("coverage", Config().updated(line["config"]))
        if counts is not None and (known is None or counts["rounds"] > known["rounds"]):
            store.append("coverage", counts)
    return str(line["key"]) if news else None
