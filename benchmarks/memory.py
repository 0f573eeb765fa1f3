"""Peak memory of this process and its children, shared pages counted once (PSS)."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it has ended
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += parents.get(process, [])
    return found


def proportional_bytes(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


class PeakMemory:
    """with PeakMemory() as peak: ...; peak.bytes is the largest sum over the process tree."""

    def __init__(self, seconds: float = 2.0) -> None:
        self.bytes, self.seconds = 0, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(proportional_bytes, tree(os.getpid()))))
            if self._stop.wait(self.seconds):
                return

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
