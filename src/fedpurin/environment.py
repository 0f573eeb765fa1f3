"""Where and how a run was made, for environment.json."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fedpurin import __version__


def environment(workers: int) -> dict[str, Any]:
    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    return {
        "fedpurin": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "git_commit": git("rev-parse", "HEAD"),
        "git_changed": bool(git("status", "--porcelain")),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "workers": workers,
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
