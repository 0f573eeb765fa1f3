"""Where and how a run was made, for environment.json."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fedpurin import devices
from fedpurin.sections import RunSection
from fedpurin.version import __version__


def environment(run: RunSection) -> dict[str, Any]:
    commit, changed = source_commit(Path(__file__).resolve().parent)
    return {
        "fedpurin": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "git_commit": commit,
        "git_changed": changed,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "workers": run.workers,
        "device": devices.record(run),
    }


def source_commit(package: Path) -> tuple[str, bool]:
    """The commit of fedpurin's own checkout, and whether it was changed since; ("", False) outside of one.

    A repository that merely surrounds the package, say with a virtual environment in it, is not asked.
    """

    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", *words], cwd=package, capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    top = git("rev-parse", "--show-toplevel")
    own = bool(top) and (Path(top) / "src" / "fedpurin").resolve() == package.resolve()
    if not own or not git("ls-files", "__init__.py"):
        return "", False
    return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
