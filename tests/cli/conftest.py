from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import Command

from fedpurin.engines import simulate
from fedpurin.engines.inline import InlineWorkers


@pytest.fixture
def fedpurin(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, started in an empty folder; clients work in the test's own process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulate, "make_transport", InlineWorkers)
    monkeypatch.delenv("FEDPURIN_DATA", raising=False)
    return Command(capsys)
