"""Live progress of a search: a bar in a terminal, a line per trial elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedpurin.tuning.trial import SearchWatcher, Standing, Trial


class SearchProgress(SearchWatcher):
    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.place = ""

    def rung_begun(self, rung: int, of: int, rounds: int, trials: int) -> None:
        self.close()
        self.console.print(f"Rung {rung} of {of}: {trials} configurations, to round {rounds}")
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.fields[place]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[said]}"),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=trials, place="", said="")
            self.bar.start()

    def trial_begun(self, trial: Trial, place: int, of: int) -> None:
        self.place, self.done = f"{place:>3}/{of}", place - 1
        self._show(self.done, f"{trial.label}: starting")

    def client_done(self, trial: Trial, t: int, until: int, done: int, total: int) -> None:
        share = (t - 1 + done / total) / until
        self._show(self.done + share, f"{trial.label}: round {t}/{until}, client {done}/{total}")

    def trial_done(self, trial: Trial, failed: str) -> None:
        if failed:
            self.console.print(f"{self.place}  {trial.label}: left out: {failed}", markup=False)
            return
        standing = Standing.of(trial, None)
        said = f"round {standing.rounds:>3}, validation {100 * standing.validation:5.1f} %"
        self.console.print(
            f"{self.place}  {said}, {standing.mib:8.3g} MiB in {standing.planned} rounds  {trial.label}",
            markup=False,
        )

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def _show(self, completed: float, said: str) -> None:
        if self.bar:
            self.bar.update(self.task, completed=completed, place=self.place, said=said)
