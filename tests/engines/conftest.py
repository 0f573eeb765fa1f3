from __future__ import annotations

import pytest

from engine_tools import InProcessWorkers
from fedpurin.engines import loop


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients work in the test's own process."""
    monkeypatch.setattr(loop, "make_workers", InProcessWorkers)
