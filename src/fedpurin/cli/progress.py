"""Progress on the console: of runs, and of a search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID

from fedpurin.config import Config
from fedpurin.console import text_column
from fedpurin.engines.driver import Watcher
from fedpurin.job import Job
from fedpurin.progress import RunProgress
from fedpurin.report.tensorboard import need_tensorboard, tensorboard_writer
from fedpurin.shell import command
from fedpurin.stopping import INTERRUPTED, stoppable
from fedpurin.tuning.trial import SearchWatcher, Standing, Trial

KEPT = "finished rounds are kept. Continue with:"


@contextmanager
def watching(console: Console, path: Path, *, tensorboard: bool) -> Iterator[Callable[..., Watcher]]:
    """Gives a watcher for each run that is started inside; whoever stops them is told how to go on."""
    if tensorboard:
        need_tensorboard()  # now, and not when the run has begun

    def watcher(config: Config, name: str = "") -> Watcher:
        opened.close()
        others: list[Watcher] = [opened.enter_context(closing(_TensorBoard()))] if tensorboard else []
        return opened.enter_context(closing(RunProgress(console, name or config.method.label, others)))

    try:
        with stoppable(), ExitStack() as opened:
            yield watcher
    except KeyboardInterrupt:
        console.print(f"stopped; {KEPT} {command('resume', path)}")
        raise SystemExit(INTERRUPTED) from None
    except SystemExit:
        if console.quiet:  # rich ends the program so where a pipe is closed: `fedpurin run | head -1`
            again = command("resume", path)
            print(f"fedpurin: stopped: nobody reads what it prints; {KEPT} {again}", file=sys.stderr)
        raise


class _TensorBoard(Watcher):
    """Event files in the run directory."""

    writer: Any = None

    def start(self, job: Job, path: Path, t: int) -> None:
        self.writer = tensorboard_writer(path)

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        self.writer.round(record, ledger_lines)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class SearchProgress(SearchWatcher):
    """A bar in a terminal, a line per trial elsewhere."""

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
                text_column("{task.fields[place]}"),
                BarColumn(bar_width=24),
                text_column("{task.fields[said]}"),
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
            self.console.print(f"{self.place}  {trial.label}: left out: {failed}")
            return
        standing = Standing.of(trial, None)
        said = f"round {standing.rounds:>3}, validation {100 * standing.validation:5.1f} %"
        self.console.print(
            f"{self.place}  {said}, {standing.mib:8.3g} MiB in {standing.planned} rounds  {trial.label}"
        )

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def _show(self, completed: float, said: str) -> None:
        if self.bar:
            self.bar.update(self.task, completed=completed, place=self.place, said=said)
