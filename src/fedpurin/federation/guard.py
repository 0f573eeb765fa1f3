"""Runs one command and takes everything it started down with it. Executed as a script, on its own.

    python -I guard.py COMMAND ARGUMENT...

The guard lives as long as the pipe on its standard input stays open. When the process at the other end
closes it or dies, however suddenly, or when the command ends, the guard ends every process that descends
from it. Flower starts some of its helpers in sessions of their own, so ending one process group would
not be enough: on Linux the guard adopts orphans (it is a "child subreaper") and can therefore always
find them. Should the guard itself be killed, the kernel tells the command to end.

Only the standard library, and no import of fedpurin: it has to start at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents first. Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                stat = file.read()
        except OSError:  # it ended while we looked
            continue
        state, parent = stat.rsplit(")", 1)[1].split()[:2]  # the name before may itself hold brackets
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.split()[0]))
    found = [root]
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    return found[1:]


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(child: subprocess.Popen[bytes]) -> None:
    """Ask politely, wait a little, then insist."""
    me = os.getpid()
    deadline = time.monotonic() + GRACE_SECONDS
    if child.poll() is None:
        child.terminate()
    while time.monotonic() < deadline and (descendants(me) or child.poll() is None):
        if child.poll() is not None:  # the command is gone: its helpers have nothing left to do
            signal_all(descendants(me), signal.SIGTERM)
        time.sleep(0.05)
    while left := descendants(me):
        signal_all(left, signal.SIGKILL)
        time.sleep(0.02)
    child.kill()
    child.wait()
    with contextlib.suppress(ChildProcessError):
        while True:  # adopted orphans are ours to reap
            os.waitpid(-1, 0)


def process_control(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    process_control(PR_SET_CHILD_SUBREAPER, 1)


def end_with_the_guard() -> None:
    """Called in the child, before it becomes the command."""
    process_control(PR_SET_PDEATHSIG, signal.SIGTERM)


def main(command: list[str]) -> int:
    adopt_orphans()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    # There are no threads yet, so it is safe to run Python between fork and exec.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_the_guard)

    def watch_parent() -> None:
        while os.read(0, 1):
            pass
        over.set()

    def watch_child() -> None:
        child.wait()
        over.set()

    for watch in (watch_parent, watch_child):
        threading.Thread(target=watch, daemon=True).start()
    while not over.wait(1.0):  # a timeout, so that signal handlers get their turn
        pass
    code = child.poll()
    end_all(child)
    return 0 if code is None else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
