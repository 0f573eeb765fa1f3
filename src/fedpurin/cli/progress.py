"""Live progress of a run: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedpurin.engines.driver import Watcher
from fedpurin.job import Job

MIB = 2**20


class RunProgress(Watcher):
    def __init__(self, console: Console, name: str, others: list[Watcher] | None = None) -> None:
        self.console, self.name, self.others = console, name, others or []
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.said = ""

    def start(self, job: Job, path: Path, t: int) -> None:
        self.rounds, self.first = job.config.run.rounds, t
        self.began = time.monotonic()
        if t:
            self.console.print(f"{self.name}: going on after round {t}")
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[said]}"),
                console=self.console,
            )
            self.task = self.bar.add_task(f"{self.name:<9}", total=self.rounds, completed=t, said="starting")
            self.bar.start()
        for other in self.others:
            other.start(job, path, t)

    def warned(self, text: str) -> None:
        self.console.print(f"{self.name}: {text}", markup=False)

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        if self.bar:
            said = f"round {t}/{self.rounds}, client {done}/{total}" + self.said
            self.bar.update(self.task, completed=t - 1 + done / total, said=said)

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        for other in self.others:
            other.round_done(record, ledger_lines)
        if record.get("final"):
            return
        t = record["round"]
        for failure in record["failed"]:
            self.console.print(f"  round {t}: client {failure['client']} left out: {failure['reason']}")
        for bound in record.get("bounded", []):
            self.console.print(f"  round {t}: client {bound['client']} bounded: {bound['reason']}")
        shared = [a for a in record["trained"]["accuracy"] if a is not None]
        accuracy = f"accuracy {100 * sum(shared) / len(shared):5.1f} %" if shared else "accuracy not shared"
        held = [a for a in record.get("validation", {}).get("accuracy", []) if a is not None]
        if held:
            accuracy += f", validation {100 * sum(held) / len(held):5.1f} %"
        up, down = (_size(ledger_lines, direction) for direction in ("up", "down"))
        self.said = f", {accuracy}, {up} up, {down} down, {self._left(t)} left"
        if self.bar:
            self.bar.update(self.task, completed=t, said=f"round {t}/{self.rounds}{self.said}")
        else:
            self.console.print(f"{self.name:<9} round {t:>3}/{self.rounds}{self.said}")

    def close(self) -> None:
        if self.bar:
            self.bar.stop()

    def _left(self, t: int) -> str:
        seconds = (time.monotonic() - self.began) / max(t - self.first, 1) * (self.rounds - t)
        minutes, seconds = divmod(round(seconds), 60)
        return (
            f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
            if minutes >= 60
            else f"{minutes}:{seconds:02d}"
        )


def _size(lines: list[dict[str, Any]], direction: str) -> str:
    """Mean per client; a download shown with a round was sent at its start."""
    sizes = [sum(line["bytes"].values()) for line in lines if line["direction"] == direction]
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return f"{mean / MIB:.2f} MiB" if mean >= MIB / 10 else f"{mean / 1024:.1f} KiB"
