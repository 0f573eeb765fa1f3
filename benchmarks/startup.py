"""How long `fedpurin --help` takes, beside a Python that does nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

LIMIT_SECONDS = 0.5


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(repeats: int) -> dict[str, float]:
    code = "from fedpurin.cli import main; main(['--help'])"
    helps, nothing = [], []
    for _ in range(repeats + 1):  # the first reads from disk
        helps.append(seconds([sys.executable, "-c", code]))
        nothing.append(seconds([sys.executable, "-c", "pass"]))
    return {
        "fedpurin --help, s": statistics.median(helps[1:]),
        "python alone, s": statistics.median(nothing[1:]),
    }
