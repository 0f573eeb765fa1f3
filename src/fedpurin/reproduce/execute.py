"""The plan with its estimate, and the runs: finished cells are skipped, interrupted ones continue."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.reproduce.record import coverage_record, run_record
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.runs.parsing import read_toml
from fedpurin.runs.run import is_run, load_run
from fedpurin.runs.same_setting import Cell, cell_key

# Seconds of one core per sample and epoch, where the store knows nothing better.
COST = {"resnet8": 1.8e-3, "resnet10": 2.8e-3, "cnn": 1.5e-4, "mlp": 5e-5}
UNKNOWN_COST = 2e-3


class Stopped(KeyboardInterrupt):
    """The time is up. The last checkpoint stands."""


@dataclass(frozen=True)
class Step:
    """A cell that is not in the store yet."""

    cell: Cell
    path: Path
    done: int  # rounds that its run directory already has
    seconds: float  # what is left, by estimate


@dataclass(frozen=True)
class Means:
    """With what to run, and until when."""

    console: Any
    workers: int = 0
    data_dir: str = ""
    deadline: float = float("inf")  # of time.monotonic

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def plan(cells: Sequence[Cell], store: ResultStore, runs: Path, workers: int, extra: str = "") -> list[Step]:
    """What is left to run, each configuration once; with `extra` also what lacks that kind of line."""
    steps: dict[str, Step] = {}
    folders = run_folders(runs)
    for cell in cells:
        if cell.key in steps or (store.finished(cell.config) and has_extra(store, cell.config, extra)):
            continue
        path = folders.get(cell.key, runs / cell.key)
        done = load_run(path).rounds if is_run(path) else 0
        steps[cell.key] = Step(cell, path, done, estimate(cell.config, done, store, workers))
    return list(steps.values())


def run_folders(runs: Path) -> dict[str, Path]:
    """Run directories by the cell they hold, whatever they are called."""
    inside = sorted(path for path in runs.iterdir() if is_run(path)) if runs.is_dir() else []
    return {cell_key(read_toml(path / "config.toml")): path for path in inside}


def has_extra(store: ResultStore, config: Config, extra: str) -> bool:
    line = store.get(extra, config) if extra else {}
    return line is not None and (extra != "coverage" or int(line["rounds"]) >= config.run.rounds)


def estimate(config: Config, done: int, store: ResultStore, workers: int) -> float:
    """Wall-clock seconds of the rounds that are left."""
    per_sample = _measured_cost(config, store) or COST.get(config.model.name, UNKNOWN_COST)
    samples = config.run.clients * config.run.participation * config.data.train_samples
    rounds = config.run.rounds - done
    return per_sample * samples * config.train.epochs * rounds / max(1, workers or os.cpu_count() or 1)


def _measured_cost(config: Config, store: ResultStore) -> float | None:
    """From finished cells of the same model on the same data."""
    seconds = work = 0.0
    for record in store.records():
        other = record.config
        if (other.model.name, other.data.dataset) == (config.model.name, config.data.dataset):
            seconds += record.line["seconds"].get("train", 0.0)
            work += other.run.clients * other.data.train_samples * other.train.epochs * record.done
    return seconds / work if work and seconds else None


def clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_plan(steps: Sequence[Step], total: int, means: Means) -> None:
    means.say(f"{total} cell{'s' if total != 1 else ''}, {total - len(steps)} of them in the store already.")
    for step in steps:
        state = f"continues after round {step.done}" if step.done else "new"
        means.say(f"  {step.cell.key}: {step.cell.label}, {state}, about {clock(step.seconds)}")
    if steps:
        means.say(f"{len(steps)} to run, about {clock(sum(s.seconds for s in steps))} in all.")


def execute(steps: Sequence[Step], store: ResultStore, means: Means, extra: str = "") -> None:
    """Run every step; its record is in the store before the next one starts."""
    for number, step in enumerate(steps, start=1):
        means.say(f"[{number}/{len(steps)}] {step.cell.key}")
        carry_out(step, store, means, [extra] if extra else [])


def carry_out(step: Step, store: ResultStore, means: Means, extras: Sequence[str] = ()) -> None:
    if not (step.path / "result.json").exists():
        run_cell(step, means)
    add_run(store, step.path, extras=extras, data_dir=means.data_dir)


def run_cell(step: Step, means: Means) -> None:
    """Start or continue the cell's run; the engine is chosen where every run's is."""
    from fedpurin import api

    if is_run(step.path):
        api.resume(step.path, _watcher(means))
        return
    config = step.cell.config
    config = replace(
        config, run=replace(config.run, workers=means.workers), data=replace(config.data, dir=means.data_dir)
    )
    assert cell_key(config) == step.cell.key
    api.run(config, step.path, _watcher(means))


def _watcher(means: Means) -> Any:
    from fedpurin.engines.driver import Watcher

    class Progress(Watcher):
        def client_done(self, *_: Any) -> None:
            """Here the checkpoint of the round before is whole, so nothing but this round is lost."""
            if time.monotonic() > means.deadline:
                raise Stopped

        def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
            moments = [(record.get(moment) or {}).get("accuracy") for moment in ("upload", "trained")]
            accuracies = [v for v in next((m for m in moments if m), []) if v is not None]
            if accuracies:
                mean, seconds = 100 * sum(accuracies) / len(accuracies), record["seconds"]["round"]
                means.say(f"  round {record['round']}: {mean:.1f} %, {seconds:.1f} s")

    return Progress()


def add_run(
    store: ResultStore, path: Path, *, partial: bool = False, extras: Sequence[str] = (), data_dir: str = ""
) -> str | None:
    """Put a run directory into the store. Returns its key, or None when the store has it in full already."""
    line = run_record(path, partial=partial)
    lines = {extra: _extra_line(extra, path, data_dir) for extra in extras}
    with store.locked():
        before = store.get("runs", line["config"])
        news = (
            before is None
            or (not before["complete"] and line["done"] > before["done"])
            or (line["complete"] and not before["complete"])
        )
        if news:
            store.append("runs", line)
        for extra, counts in lines.items():
            stored = store.get(extra, line["config"])
            longer = stored is None or (counts or {}).get("rounds", 0) > stored.get("rounds", 0)
            if counts is not None and longer:
                store.append(extra, counts)
    return str(line["key"]) if news else None


def _extra_line(extra: str, path: Path, data_dir: str) -> dict[str, Any] | None:
    if extra == "coverage":
        return coverage_record(path)
    if extra == "norms":
        from fedpurin.reproduce.norms import norms_record

        return norms_record(path, data_dir)
    raise RunError(f"there is no check {extra!r} of a finished run")
