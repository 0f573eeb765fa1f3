"""Shared by the federation's tests: programs of the system, and proof that nothing is left behind."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import need

with warnings.catch_warnings():  # Flower's own imports use names that its dependencies have deprecated
    warnings.simplefilter("ignore")
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401


@pytest.fixture(scope="session")
def nginx() -> str:
    return need("nginx")


def marked_processes(mark: str) -> list[str]:
    """Command lines of living processes with this text in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.fixture(scope="module")
def nothing_left() -> Iterator[None]:
    """Every process started meanwhile, directly or not, has ended by the end of the module."""
    mark = f"FEDPURIN_TEST_MARK={os.getpid()}-{os.urandom(4).hex()}"
    name, _, value = mark.partition("=")
    os.environ[name] = value
    yield
    del os.environ[name]
    assert marked_processes(mark) == []
