"""The torture program itself, for as short as it can be: real kills, signals, a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).with_name("torture.py")


@pytest.mark.slow
def test_every_fault_of_the_torture_program_leaves_local_runs_intact(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    words = [sys.executable, str(TORTURE), "--minutes", "0.1", "--engine", "local", "--json", str(table)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(table.read_text())
    assert [line["engine"] for line in lines].count("local") == 3  # kill -9, SIGINT, SIGTERM
    assert all(line["struck"] > 0 and line["runs"] > 0 for line in lines), lines
