"""Slow tests run with CI=true or --slow; there a missing component is a failure, not a skip."""

from __future__ import annotations

import os
import signal

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what it puts in the background with Ctrl-C ignored, nohup with SIGHUP, and processes
    inherit that. Tests interrupt the processes they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


CLUSTERS = ("tests/federation/", "tests/engines/test_ray.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first, for the sake of `pytest -n 2 --dist loadfile`."""
    items.sort(key=lambda item: not item.nodeid.startswith(CLUSTERS))
    if config.getoption("--slow") or os.environ.get("CI") == "true":
        return
    skip = pytest.mark.skip(reason="slow: run with CI=true or --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """As every process of an engine has it."""
    torch.set_num_threads(1)
