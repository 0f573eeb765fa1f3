from __future__ import annotations

import pytest

from fedpurin.engines import simulate
from fedpurin.engines.inline import InlineWorkers


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients work in the test's own process."""
    monkeypatch.setattr(simulate, "make_transport", InlineWorkers)
