"""A run as the user of the Python interface has it in hand: what `runs.Run` knows, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin.runs import run as runs
from fedpurin.runs.reading import read_run


@dataclass(frozen=True)
class Run(runs.Run):
    """A run directory in memory that can draw itself."""

    def figure(self, name: str, **choices: str) -> Any:
        """A plotly figure of this run for a notebook: see `fedpurin.report.figures.FIGURES`."""
        from fedpurin.report.figures import figure

        return figure(self, name, **choices)


def load_run(path: Path | str) -> Run:
    """Read a run directory, finished or not. Raises RunError for anything that is not one."""
    return Run(**read_run(Path(path)))
