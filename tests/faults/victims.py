"""Processes that run fedpurin's command line and are to be killed: forked, so that they start at once."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedpurin.cli.main import main

PATIENCE = 120.0  # seconds that processes may take to end after the one that started them
PR_SET_PDEATHSIG = 1  # none of them outlives the one that tortures them
PR_SET_SECUREBITS, NO_ROOT = 28, 0b11  # for good: another program does not get root's rights back
DAC = 0b111  # the first capabilities: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH


@dataclass
class Victim:
    pid: int
    log: Path
    code: int | None = None  # as of subprocess: negative for a signal

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = float("inf")) -> int | None:
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        return self.code

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def family(self) -> set[int]:
        """Itself and all processes it has started, directly or not."""
        found, new = set(), {self.pid}
        while new:
            found |= new
            new = {child for pid in new for child in _children(pid)} - found
        return found


def start(words: list[str], log: Path, prepare: Callable[[], object] = lambda: None) -> Victim:
    """`fedpurin WORDS` in a process and a session of its own; `prepare` is called in it first."""
    pid = os.fork()
    if pid:
        return Victim(pid, log)
    code = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        prepare()
        code = main(words)
        sys.stdout.flush()
    except SystemExit as problem:
        code = problem.code if isinstance(problem.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait_until_gone(pids: set[int]) -> None:
    """Whatever a killed command had started must end by itself."""
    until = time.monotonic() + PATIENCE
    while left := {pid for pid in pids if _alive(pid)}:
        if time.monotonic() > until:
            raise AssertionError(f"processes {sorted(left)} outlived the command that started them")
        time.sleep(0.02)


def without_roots_rights() -> None:
    """Permissions of files count for this process and those that it starts, even if they are root's."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~DAC  # effective; what is permitted stays
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
