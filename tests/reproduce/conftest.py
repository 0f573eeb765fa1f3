from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest
from reproduce_tools import Reproduce
from rich.console import Console

from fedpurin.reproduce.command import add_arguments, run


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    """An experiments folder without results."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    return folder


@pytest.fixture
def reproduce(experiments: Path, tmp_path: Path) -> Reproduce:
    """Runs `fedpurin reproduce ...`; returns its exit code and what it printed."""

    def call(*words: str) -> tuple[int, str]:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        out = io.StringIO()
        places = ["--experiments", str(experiments), "--runs", str(tmp_path / "runs")]
        code = run(parser.parse_args([*words, *places]), Console(file=out, width=400))
        return code, out.getvalue()

    return call
