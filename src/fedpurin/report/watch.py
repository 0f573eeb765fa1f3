"""Follow a running job in the terminal: `fedpurin watch RUN`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedpurin.errors import RunError
from fedpurin.files import regular
from fedpurin.report.measure import Measure, duration, measure_of, mib
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.runs import shapes
from fedpurin.runs.parsing import parse_lines, read_toml
from fedpurin.runs.reading import measurements
from fedpurin.runs.run import MIB, MOMENTS, VALIDATION
from fedpurin.runs.same_setting import method_label

POLL_SECONDS = 1.0
BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
SHOWN = {**{moment: MOMENT_LABELS[moment] for moment in MOMENTS}, VALIDATION: "on validation"}
QUIET_FACTOR = 10  # silence of so many rounds is worth a word


@dataclass
class Tail:
    """New whole lines of a growing file, read from where the last reading ended, of this shape."""

    file: Path
    shape: Any = None
    offset: int = 0

    def lines(self) -> list[dict[str, Any]] | None:
        """None when the file was cut: a resumed run starts again from its last checkpoint."""
        try:
            size = regular(self.file).stat().st_size
            if size < self.offset:
                self.offset = 0
                return None
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                fresh = stream.read()
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise RunError(f"{self.file} cannot be read ({problem.strerror}); {shapes.RESTORE}") from problem
        whole = fresh[: fresh.rfind(b"\n") + 1]
        entries = parse_lines(self.file, whole)
        for entry in entries:
            shapes.check(self.file, entry, self.shape, "a line")
        self.offset += len(whole)
        return entries


@dataclass
class Progress:
    """What the run has told so far."""

    method: str
    planned: int
    clients: int
    measure: Measure
    rounds: int = 0
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    sent: int = 0  # bytes, both ways
    failed: int = 0

    def take(self, line: dict[str, Any]) -> None:
        if not line.get("final"):
            self.rounds = int(line["round"])
            self.failed += len(line.get("failed") or [])
        took = float((line.get("seconds") or {}).get("round") or 0.0)
        self.seconds.append(took if math.isfinite(took) else 0.0)
        for moment in SHOWN:
            values: dict[int, list[float]] = {}
            for _, t, value in measurements(line, moment, "accuracy"):
                if math.isfinite(value):
                    values.setdefault(t, []).append(value)
            curve = self.curves.setdefault(moment, {})
            curve |= {t: sum(shared) / len(shared) for t, shared in values.items()}

    def pace(self) -> float | None:
        """Seconds of one of the last rounds."""
        recent = self.seconds[-5:]
        return sum(recent) / len(recent) if recent else None

    def seconds_left(self) -> float | None:
        pace = self.pace()
        return None if pace is None else pace * max(self.planned - self.rounds, 0)

    def mib_per_client(self) -> float:
        return self.sent / MIB / max(self.clients, 1)

    def line(self) -> str:
        """One line for logs and pipes."""
        parts = [f"round {self.rounds}/{self.planned}"]
        for moment in ("upload", "merged"):
            if curve := self.curves.get(moment):
                parts.append(f"{MOMENT_LABELS[moment]} {self.measure.text(curve[max(curve)])}")
        parts.append(f"{mib(self.mib_per_client())} per client")
        left = self.seconds_left()
        if left:
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)


def sparkline(values: list[float]) -> str:
    """A curve in one line of text; the most recent values when there are more than fit."""
    shown = values[-SPARK_WIDTH:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    step = (high - low) or 1.0
    return "".join(BARS[min(int((value - low) / step * len(BARS)), len(BARS) - 1)] for value in shown)


def watch(
    run_dir: Path | str,
    console: Console,
    follow: bool = True,
    *,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show a run's progress until its result.json appears. Ctrl-C ends the watching, not the run."""
    path = Path(run_dir)
    follower = Follower(path, clock)
    steps = _steps(follower, follow, wait)
    try:
        if console.is_terminal:
            with Live(follower.panel(), console=console, auto_refresh=False) as live:
                for _ in steps:
                    live.update(follower.panel(), refresh=True)
        else:
            shown = -1
            for _ in steps:
                if follower.progress.rounds != shown:
                    shown = follower.progress.rounds
                    console.print(follower.progress.line(), highlight=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print(f"No longer watching {path}; the run itself goes on.", highlight=False)
        return
    if follower.done:
        console.print(f"Complete: {path}", highlight=False, soft_wrap=True)


def _steps(follower: Follower, follow: bool, wait: Callable[[float], None]) -> Iterator[None]:
    """One after each look at the run, until it is complete."""
    while not follower.step() and follow:
        yield
        wait(POLL_SECONDS)
    yield


class Follower:
    """Reads what is new in a run directory, and draws it."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path, self.clock = path, clock
        self.done = False
        self._restart()

    def _restart(self) -> None:
        config = read_toml(self.path / "config.toml", shapes.CONFIG)
        run = config.get("run", {})
        rounds, clients = run.get("rounds", 0), run.get("clients", 0)
        self.progress = Progress(str(run.get("method", "run")), rounds, clients, measure_of([config]))
        self.metrics = Tail(self.path / "metrics.jsonl", shapes.METRICS_LINE)
        self.ledger = Tail(self.path / "ledger.jsonl", shapes.LEDGER_LINE)
        self.heard = self.clock()

    def step(self) -> bool:
        """Take in what is new; true when the run is complete."""
        # Look for the result first: all lines were written before it.
        done = (self.path / "result.json").exists()
        messages, lines = self.ledger.lines(), self.metrics.lines()
        if messages is None or lines is None:
            self._restart()
            messages, lines = self.ledger.lines() or [], self.metrics.lines() or []
        self.progress.sent += sum(sum(entry["bytes"].values()) for entry in messages)
        for line in lines:
            self.progress.take(line)
        if lines:
            self.heard = self.clock()
        self.done = done
        return done

    def panel(self) -> Table:
        state = self.progress
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column()
        table.add_row("run", f"{method_label(state.method)}, {state.clients} clients")
        bar = ProgressBar(total=max(state.planned, 1), completed=state.rounds, width=SPARK_WIDTH)
        table.add_row("round", f"{state.rounds} of {state.planned}")
        table.add_row("", bar)
        for moment in SHOWN:
            curve = state.curves.get(moment)
            if curve:
                values = [curve[t] for t in sorted(curve)]
                table.add_row(SHOWN[moment], f"{state.measure.text(values[-1])}  {sparkline(values)}")
        table.add_row("traffic", f"{mib(state.mib_per_client())} per client, both ways")
        left = state.seconds_left()
        if left is not None:
            table.add_row("time", f"{duration(sum(state.seconds))} so far, about {duration(left)} left")
        if state.failed:
            table.add_row("failed", f"{state.failed} client rounds")
        if self._quiet():
            table.add_row("", f"no news for {duration(self.clock() - self.heard)}: is the run still alive?")
        return table

    def _quiet(self) -> bool:
        pace = self.progress.pace()
        usual = 60.0 if pace is None else max(pace, POLL_SECONDS)
        return not self.done and self.clock() - self.heard > QUIET_FACTOR * usual
