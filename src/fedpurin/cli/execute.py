"""Start or continue one run with progress on the console."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from fedpurin.cli.progress import RunProgress
from fedpurin.config import Config
from fedpurin.engines.loop import Watcher, resume_run, run_job
from fedpurin.job import Job
from fedpurin.methods import METHODS


def execute(
    config: Config, path: Path, console: Console, *, name: str = "", tensorboard: bool = False
) -> dict[str, Any]:
    """A new run, or the rest of one that stopped half-way."""
    name = name or METHODS[config.run.method].label
    fresh = not (path / "config.toml").exists()
    if config.run.engine == "flower":
        return _on_flower(config, path, console, fresh)
    others: list[Watcher] = [_TensorBoard()] if tensorboard else []
    progress = RunProgress(console, name, others)
    try:
        return run_job(Job.build(config), path, progress) if fresh else resume_run(path, progress)
    finally:
        progress.close()
        for other in others:
            other.close()  # type: ignore[attr-defined]


def _on_flower(config: Config, path: Path, console: Console, fresh: bool) -> dict[str, Any]:
    from fedpurin.engines.flower import engine
    from fedpurin.federation.progress import describe, say

    def show(event: dict[str, Any]) -> None:
        if line := describe(event, path):
            say(console, line)

    if fresh:
        return engine.run_job(Job.build(config), path, on_event=show)
    return engine.resume_run(path, on_event=show)


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
