"""A program without stdout or stderr, as a service has it, does its work and prints nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_commands_work_without_the_streams_that_are_closed(tmp_path: Path, closed: str) -> None:
    command = f'"{sys.executable}" -m fedpurin init mine {closed}'
    ended = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)  # noqa: S602
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["config.toml", "my_project.py"]
    text = (tmp_path / "mine" / "config.toml").read_text()
    assert text.startswith("# Settings of fedpurin.")
