"""Live progress of a run: a bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID

from fedpurin import devices
from fedpurin.console import is_terminal, make_console, text_column
from fedpurin.engines.driver import Watcher
from fedpurin.job import Job
from fedpurin.runs.ledger import MIB
from fedpurin.task import metric_text


class RunProgress(Watcher):
    def __init__(self, console: Console, name: str, others: list[Watcher] | None = None) -> None:
        self.console, self.name, self.others = console, name, others or []
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.said = ""

    def start(self, job: Job, path: Path, t: int) -> None:
        self.rounds, self.first, self.config = job.config.run.rounds, t, job.config
        self.began = time.monotonic()
        if t:
            self.console.print(f"{self.name}: going on after round {t}")
        if (job.config.run.device, job.config.train.precision) != ("cpu", "float32"):
            device = devices.record(job.config.run)
            self.console.print(f"{self.name}: device {device}, {job.config.train.precision}")
        self._open(t)
        for other in self.others:
            other.start(job, path, t)

    def _open(self, t: int) -> None:
        if self.console.is_terminal:
            name, said = text_column("{task.description}"), text_column("{task.fields[said]}")
            self.bar = Progress(name, BarColumn(bar_width=24), said, console=self.console)
            self.task = self.bar.add_task(f"{self.name:<9}", total=self.rounds, completed=t, said="starting")
            self.bar.start()

    def warned(self, text: str) -> None:
        self.console.print(f"{self.name}: {text}")

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        said = f"round {t}/{self.rounds}, client {done}/{total}" + self.said
        self._move(t - 1 + done / total, said)

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        for other in self.others:
            other.round_done(record, ledger_lines)
        if record.get("final"):
            return
        t = record["round"]
        for key, what in (("failed", "left out"), ("bounded", "bounded")):
            for entry in record.get(key, []):
                self.console.print(f"  round {t}: client {entry['client']} {what}: {entry['reason']}")
        shared = [a for a in record["trained"]["accuracy"] if a is not None]
        settings = self.config.train
        mean = sum(shared) / len(shared) if shared else None
        accuracy = metric_text(settings.loss, settings.metric, mean)
        held = [a for a in record.get("validation", {}).get("accuracy", []) if a is not None]
        if held:
            accuracy += f", validation {100 * sum(held) / len(held):5.1f} %"
        up, down = (_size(ledger_lines, direction) for direction in ("up", "down"))
        self.said = f", {accuracy}, {up} up, {down} down, {self._left(t)} left"
        if not self._move(t, f"round {t}/{self.rounds}{self.said}"):
            self.console.print(f"{self.name:<9} round {t:>3}/{self.rounds}{self.said}")

    def _move(self, completed: float, said: str) -> bool:
        """Whether there is a bar that shows it."""
        if self.bar:
            self.bar.update(self.task, completed=completed, said=said)
        return self.bar is not None

    def close(self) -> None:
        if self.bar:
            self.bar.stop()

    def _left(self, t: int) -> str:
        seconds = (time.monotonic() - self.began) / max(t - self.first, 1) * (self.rounds - t)
        minutes, seconds = divmod(round(seconds), 60)
        hours, rest = divmod(minutes, 60)
        return f"{hours}:{rest:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class NotebookProgress(RunProgress):
    """A line below the cell, which changes in place."""

    def __init__(self, name: str) -> None:
        super().__init__(make_console(), name)
        self.handle: Any = None

    def _open(self, t: int) -> None:
        screen: Any = import_module("IPython.display")  # some versions have types, some have not
        self.show, self.completed = screen.HTML, float(t)
        self.handle = screen.display(self.show(self._line("starting")), display_id=True)

    def _line(self, said: str) -> str:
        bar = f'<progress value="{self.completed:g}" max="{self.rounds}" style="width:12em"></progress>'
        return f"<div><code>{html.escape(self.name)}</code> {bar} {html.escape(said)}</div>"

    def _move(self, completed: float, said: str) -> bool:
        self.completed = completed
        self.handle.update(self.show(self._line(said)))
        return True

    def close(self) -> None:
        if self.handle is not None and self.completed < self.rounds:
            stopped = f"stopped after {self.completed:.1f} of {self.rounds} rounds; the same call goes on"
            self.handle.update(self.show(self._line(stopped)))


def usual_progress(name: str, *, always: bool = False) -> RunProgress | None:
    """In a notebook or a terminal; None where nobody watches, unless plain lines are wanted."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return NotebookProgress(name)
    return RunProgress(make_console(), name) if always or is_terminal() else None


def _size(lines: list[dict[str, Any]], direction: str) -> str:
    """Mean per client; a download shown with a round was sent at its start."""
    sizes = [sum(line["bytes"].values()) for line in lines if line["direction"] == direction]
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return f"{mean / MIB:.2f} MiB" if mean >= MIB / 10 else f"{mean / 1024:.1f} KiB"
