"""Runs with progress on the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.job import Job
from fedpurin.progress import RunProgress


@contextmanager
def watching(console: Console, *, tensorboard: bool) -> Iterator[Callable[..., Watcher]]:
    """Gives a watcher for each run that is started inside; closes what it opened."""
    opened: list[RunProgress] = []
    if tensorboard:
        from fedpurin.report.tensorboard import need_tensorboard

        need_tensorboard()  # now, and not when the run has begun

    def watcher(config: Config, name: str = "") -> Watcher:
        close_all()
        others: list[Watcher] = [_TensorBoard()] if tensorboard else []
        opened.append(RunProgress(console, name or config.method.label, others))
        return opened[-1]

    def close_all() -> None:
        while opened:
            progress = opened.pop()
            progress.close()
            for other in progress.others:
                other.close()  # type: ignore[attr-defined]  # only _TensorBoard stands there

    try:
        yield watcher
    finally:
        close_all()


class _TensorBoard(Watcher):
    """Event files in the run directory."""

    def __init__(self) -> None:
        self.writer: Any = None

    def start(self, job: Job, path: Path, t: int) -> None:
        from fedpurin.report.tensorboard import tensorboard_writer

        self.writer = tensorboard_writer(path)

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        self.writer.round(record, ledger_lines)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
