"""Programs of the system that tests need."""

from __future__ import annotations

import os
import shutil

import pytest

SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def need(program: str) -> str:
    """The path of a system program; without it the test is skipped, but fails in CI."""
    path = shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is not installed, and CI must run this test")
        pytest.skip(f"{program} is not installed")
    return path
