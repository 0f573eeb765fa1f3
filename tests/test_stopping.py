"""SIGTERM and SIGHUP stop a command in order, unless whoever started it wants it to go on."""

from __future__ import annotations

import os
import signal

import pytest

from fedpurin.cli import main
from fedpurin.stopping import INTERRUPTED, stoppable

SIGNALS = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_an_interruption_inside_and_what_it_was_outside(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stoppable():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    """`nohup fedpurin run &`: the terminal may be closed."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_every_command_ends_in_order_when_it_is_told_to(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedpurin.methods.method_names", lambda: os.kill(os.getpid(), number))
    assert main(["methods"]) == INTERRUPTED
    assert capsys.readouterr().err == "\nfedpurin: stopped\n"
