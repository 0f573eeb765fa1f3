"""Signals that end a command in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
"""The exit code of a command that was stopped."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and a closed terminal end the command as Ctrl-C does: in order, leaving nothing behind.

    Whoever started it so that it ignores one of them (nohup) wants just that.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is told of signals
        return
    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
