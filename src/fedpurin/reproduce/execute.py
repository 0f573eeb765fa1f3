"""The plan with its estimate, and the runs: finished cells are skipped, interrupted ones continue."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin import api
from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.reproduce.record import coverage_record, norms_record, run_record
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

    def __str__(self) -> str:
        state = f"continues after round {self.done}" if self.done else "new"
        return f"{state}, about {clock(self.seconds)}"


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
        means.say(f"  {step.cell.key}: {step.cell.label}, {step}")
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
    if is_run(step.path):
        api.resume(step.path, Progress(means))
        return
    config = step.cell.config.updated({"run": {"workers": means.workers}, "data": {"dir": means.data_dir}})
    assert cell_key(config) == step.cell.key
    api.run(config, step.path, Progress(means))


class Progress(Watcher):
    def __init__(self, means: Means) -> None:
        self.means = means

    def client_done(self, *_: Any) -> None:
        """Here the checkpoint of the round before is whole, so nothing but this round is lost."""
        if time.monotonic() > self.means.deadline:
            raise Stopped

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        moments = [(record.get(moment) or {}).get("accuracy") for moment in ("upload", "trained")]
        accuracies = [v for v in next((m for m in moments if m), []) if v is not None]
        if accuracies:
            mean, seconds = 100 * sum(accuracies) / len(accuracies), record["seconds"]["round"]
            self.means.say(f"  round {record['round']}: {mean:.1f} %, {seconds:.1f} s")


def add_run(
    store: ResultStore, path: Path, *, partial: bool = False, extras: Sequence[str] = (), data_dir: str = ""
) -> str | None:
    """Put a run directory into the store. Returns its key, or None when the store has it in full already."""
    line = run_record(path, partial=partial)
    lines: dict[str, dict[str, Any] | None] = {}
    if "coverage" in extras:
        lines["coverage"] = coverage_record(path)
    if "norms" in extras:
        lines["norms"] = norms_record(path, data_dir)
    with store.locked():
        before = store.get("runs", line["config"])
        longer = before is None or line["complete"] or line["done"] > before["done"]
        news = longer and not (before and before["complete"])
        if news:
            store.append("runs", line)
        for extra, counts in lines.items():
            stored = store.get(extra, line["config"])
            if counts and (stored is None or counts.get("rounds", 0) > stored.get("rounds", 0)):
                store.append(extra, counts)
    return str(line["key"]) if news else None
