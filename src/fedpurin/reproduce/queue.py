"""`fedpurin reproduce queue`: use idle hours. Cells by priority from queue.toml, one after the other.

It works at low priority, continues what was interrupted, stores each finished cell at once, and what it has
of an unfinished one when it is stopped (time is up, Ctrl-C, SIGTERM). Then figures and documents are renewed.
"""

from __future__ import annotations

import os
import subprocess
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpurin.errors import ConfigError, FedpurinError, RunError
from fedpurin.files import LARGEST_CONFIGURATION, make_folders, only_process, read_bounded
from fedpurin.reproduce.docs import words_of
from fedpurin.reproduce.execute import Means, Step, Stopped, add_run, carry_out, clock, plan
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request
from fedpurin.runs.run import is_run, load_run
from fedpurin.runs.same_setting import Cell
from fedpurin.runs.shapes import NUMBER, TEXT, WHOLE, Needed, Plain, complaint
from fedpurin.settings import parse_sets
from fedpurin.stopping import stoppable

LOWEST_PRIORITY = 19
CELL = {
    "name": Needed(TEXT),
    "question": TEXT,
    "method": Needed(TEXT),
    "scale": TEXT,
    "dataset": TEXT,
    "alpha": NUMBER,
    "seeds": [WHOLE],
    "rounds": Plain((int,), "a whole number from 1", 1),
    "set": [TEXT],
    "coverage": Plain((bool,), "true or false"),
    "norms": Plain((bool,), "true or false"),
}
DOCUMENTS = {"files": [TEXT], "figures": [TEXT], "out": TEXT}


@dataclass(frozen=True)
class Wanted:
    """One entry of the queue: a setting, its seeds, and the question it answers."""

    name: str
    question: str
    cells: list[Cell]
    extra: str  # a line beside the run's that it must not lack: coverage, norms or ""
    waits: str  # why it cannot be run yet; "" when it can


@dataclass(frozen=True)
class Queue:
    """What to run, and what is made anew from the store; paths from the folder that holds the experiments."""

    folder: Path  # experiments
    wanted: list[Wanted]
    files: list[Path]
    figures: list[list[str]]  # reproduce's words
    out: Path

    @classmethod
    def load(cls, folder: Path) -> Queue:
        file = folder / "queue.toml"
        try:
            table = tomllib.loads(read_bounded(file, LARGEST_CONFIGURATION).decode())
        except OSError as problem:
            raise ConfigError(
                f"cannot read {file} ({problem.strerror}); write it ([[cell]] entries with name, method, "
                "dataset, alpha, rounds, seeds, set), or name its folder: --experiments DIR"
            ) from problem
        except (ValueError, RecursionError) as problem:
            raise ConfigError(f"{file} is not valid TOML: {problem}") from problem
        documents, cells, base = table.get("documents", {}), table.get("cell", []), folder.resolve().parent
        _fits(documents, DOCUMENTS, f"{file}, [documents]")
        if not isinstance(cells, list):
            raise ConfigError(f"{file}: cell should be written as [[cell]], once for each")
        for number, entry in enumerate(cells, start=1):
            _fits(entry, CELL, f"{file}, cell {number}")
        return cls(
            folder,
            wanted=[_wanted(entry) for entry in cells],
            files=[base / name for name in documents.get("files", [])],
            figures=[words_of(words, f"{file}: {words}") for words in documents.get("figures", [])],
            out=base / documents.get("out", "."),
        )

    def steps(self, store: ResultStore, runs: Path, workers: int) -> list[tuple[Wanted, Step]]:
        """What is left, in the order of the file; a cell that two entries want comes once."""
        by_cell: dict[str, tuple[Wanted, Step]] = {}
        for wanted in self.wanted:
            for step in plan(wanted.cells, store, runs, workers, wanted.extra):
                by_cell.setdefault(step.cell.key, (wanted, step))
        return list(by_cell.values())


def _wanted(entry: dict[str, Any]) -> Wanted:
    cells, waits = [], ""
    try:
        request = Request(
            scale=entry.get("scale", "paper"),
            datasets=(entry.get("dataset", "cifar-10"),),
            methods=(entry["method"],),
            rounds=entry.get("rounds"),
            changes=parse_sets(entry.get("set", [])),
        )
        for seed in entry.get("seeds", [1]):
            alpha = float(entry.get("alpha", 0.5))
            config = request.config(request.datasets[0], alpha, seed, entry["method"])
            cells.append(Cell(config, entry["name"]))
    except ConfigError as problem:  # a method or setting that this version does not have yet
        cells, waits = [], str(problem)
    question = str(entry.get("question", ""))
    extra = next((name for name in ("coverage", "norms") if entry.get(name)), "")
    return Wanted(entry["name"], question, cells, extra, waits)


def _fits(entry: Any, shape: dict[str, Any], where: str) -> None:
    if said := complaint(entry, shape, "it"):
        raise ConfigError(f"{where}: {said}")
    if unknown := set(entry) - set(shape):
        raise ConfigError(
            f"{where}: unknown {', '.join(sorted(unknown))}; it accepts {', '.join(sorted(shape))}"
        )


def show(queue: Queue, steps: list[tuple[Wanted, Step]], means: Means) -> None:
    for wanted in queue.wanted:
        if wanted.waits:
            means.say(f"  {wanted.name}: waits: {wanted.waits}")
    for wanted, step in steps:
        means.say(f"  {wanted.name}: {step.cell.key}, {step}; {wanted.question}")
    means.say(f"{len(steps)} to run, about {clock(sum(step.seconds for _, step in steps))} in all.")


def work(queue: Queue, store: ResultStore, runs: Path, means: Means, minutes: float | None) -> bool:
    """Carry out the queue until it is empty or the time is up. Whether anything new is in the store."""
    news = False
    refusal = RunError(f"another queue works on {store.folder}; wait for it or stop it")
    make_folders(store.folder)
    with only_process(store.folder / "queue.lock", refusal), stoppable():
        os.nice(LOWEST_PRIORITY - os.nice(0))
        until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        means = replace(means, deadline=until)
        for wanted, step in queue.steps(store, runs, means.workers):
            if time.monotonic() > until:
                means.say("the time is up")
                break
            means.say(f"{wanted.name}: {step.cell.key}")
            try:
                carry_out(step, store, means, sorted({"norms", wanted.extra} - {""}))
                news = True
            except KeyboardInterrupt as stop:
                news |= _store_unfinished(step, store, means)
                means.say("the time is up" if isinstance(stop, Stopped) else "stopped")
                break
            except FedpurinError as problem:  # one cell that fails must not keep the others waiting
                means.say(f"{wanted.name} failed: {problem}")
    return news


def _store_unfinished(step: Step, store: ResultStore, means: Means) -> bool:
    """What an interrupted cell has so far; its run directory may be lost with the machine."""
    if not is_run(step.path) or not load_run(step.path).rounds:
        return False
    key = add_run(store, step.path, partial=True)
    if key is not None:
        means.say(f"{key}: stored as far as it came; the next queue continues it")
    return key is not None


def commit(queue: Queue) -> str:
    """Commit the results and what was made from them; the message says which cells are finished."""
    results = queue.folder.resolve() / "results"
    base, paths = results.parent.parent, [results, *queue.files, *([queue.out] if queue.figures else [])]
    words = [str(path) for path in paths if path.exists()]
    if not _git(base, "status", "--porcelain", "--", *words):
        return "nothing new to commit"
    _git(base, "add", "--", *words)
    added = _git(base, "diff", "--cached", "--unified=0", "--", str(results / "runs.jsonl"))
    keys = [line.split('"', 4)[3] for line in added.splitlines() if line.startswith('+{"key"')]
    subject = f"Results of the queue: {len(keys)} run{'s' if len(keys) != 1 else ''}"
    _git(base, "commit", "-m", subject, "-m", "\n".join(keys) or "documents made anew", "--", *words)
    return f"committed: {subject}"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"git {words[0]} failed in {folder}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()
