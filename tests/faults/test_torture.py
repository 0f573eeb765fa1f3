"""The torture program itself, for as short as it can be: real kills, signals, a full disk."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crashes
import pytest
from checks import assert_advice_can_be_followed
from crashes import STARTS, STOPPED, Arena, Fault, signals
from sweep import COMPLETE
from victims import Victim

from fedpurin.stopping import INTERRUPTED

TORTURE = Path(__file__).with_name("torture.py")


@pytest.fixture
def torture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module, without what it does to the process that it runs in."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    return importlib.import_module("torture")


LATE = "fedpurin: error: Ray could not be started (The current node timed out during startup.)"
OTHER = "fedpurin: error: no Ray actor could start within 300 s"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--minutes", "nan"], "--minutes nan: give a number from 0 on"),
        (["--minutes", "-1"], "--minutes -1.0: give a number from 0 on"),
        (["--json", "/dev/full"], "/dev/full cannot be written"),
        (["--table", "/dev/null"], "/dev/null holds no table"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_is_broken(
    torture: Any,
    words: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["torture.py", *words])
    with pytest.raises(SystemExit) as end:
        torture.main()
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_who_stops_it_finds_nothing_left_and_what_was_counted(
    torture: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def two_faults(*_: object) -> Iterator[Fault]:
        yield Fault("kill -9", "inline")
        raise KeyboardInterrupt

    monkeypatch.setattr(torture, "torture", two_faults)
    monkeypatch.setattr(torture, "warm_up", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    table = tmp_path / "new" / "table.json"
    monkeypatch.setattr(sys, "argv", ["torture.py", "--minutes", "0", "--json", str(table)])
    assert torture.main() == INTERRUPTED
    assert "stopped" in capsys.readouterr().err
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [fault["name"] for fault in json.loads(table.read_text())] == ["kill -9"]


@pytest.mark.parametrize(
    ("answers", "tries", "well"),
    [
        ([(1, LATE), (0, "done")], 2, True),
        ([(1, LATE)] * STARTS, STARTS, False),
        ([(1, OTHER)], 1, False),
        ([(1, f"Traceback\n{LATE}")], 1, False),
        ([(-6, LATE)], 1, False),
    ],
)
def test_only_a_ray_that_is_late_is_started_again_and_not_for_ever(
    answers: list[tuple[int, str]], tries: int, well: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, left = Arena.__new__(Arena), list(answers)
    arena.engine = "ray"

    def start(path: Path | None = None) -> Victim:
        code, said = left.pop(0)
        (tmp_path / "log.txt").write_text(said)
        return Victim(0, tmp_path / "log.txt", code)

    monkeypatch.setattr(arena, "start", start)
    if well:
        assert arena.go_on() == "done"
    else:
        with pytest.raises(AssertionError, match="ray: exit code"):
            arena.go_on()
    assert len(answers) - len(left) == tries


def test_a_run_that_is_struck_before_it_has_a_directory_is_still_brought_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, fault, ended = Arena.__new__(Arena), Fault("SIGINT", "local"), []
    arena.path = tmp_path / "run"
    monkeypatch.setattr(arena, "finish", lambda: ended.append(fault.struck))
    with arena.strikes(fault, count=1, until=0.0) as numbers:
        for _ in numbers:
            fault.struck += 1
    assert (fault.runs, ended) == (1, [1])


@pytest.mark.parametrize("complete", [True, False])
def test_a_signal_that_ends_a_process_at_once_is_fine_only_where_its_run_is_complete(
    complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, codes = Arena.__new__(Arena), [-signal.SIGTERM, STOPPED]
    arena.engine, arena.draw, arena.seconds, arena.path = "ray", random.Random(1), 0.1, tmp_path / "run"
    arena.path.mkdir()
    (arena.path / "config.toml").touch()
    if complete:
        (arena.path / "result.json").write_text("{}")
    (tmp_path / "log.txt").write_text("stopped; go on")
    monkeypatch.setattr(arena, "start", lambda: Victim(0, tmp_path / "log.txt", codes.pop(0)))
    monkeypatch.setattr(arena, "finish", lambda: None)
    if complete:
        seen = {COMPLETE: 1, "stopped, saying how to go on": 1}
        assert signals(arena, signal.SIGTERM, 1, 0.0).seen == seen
    else:
        with pytest.raises(AssertionError, match="stopped; go on"):
            signals(arena, signal.SIGTERM, 1, 0.0)


def test_no_bit_is_flipped_in_a_run_that_was_complete_before_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its models may still be at the sites, but no checkpoint or state is read any more."""

    class FinishedError(Exception):
        pass

    def finish() -> None:
        raise FinishedError

    arena = Arena.__new__(Arena)
    arena.engine, arena.path, arena.draw = "flower", tmp_path / "run", random.Random(1)
    for name in ("checkpoints/round-00003", "checkpoints/round-00004", "federation/site-0/r"):
        (arena.path / name).mkdir(parents=True)
    (arena.path / "result.json").write_text("{}")
    files = [arena.path / "federation/site-0/r/state.safetensors"]
    files.append(arena.path / "checkpoints/round-00004/server.safetensors")
    for file in files:
        file.write_bytes(b"sound")
    monkeypatch.setattr(crashes, "_killed_between_checkpoints", lambda arena: Victim(0, tmp_path, -9))
    monkeypatch.setattr(crashes, "assert_nothing_half_written", lambda path: None)
    monkeypatch.setattr(arena, "finish", finish)
    with pytest.raises(FinishedError):
        crashes.flipped_bits(arena, 1, 0.0)
    assert [file.read_bytes() for file in files] == [b"sound", b"sound"]


@pytest.mark.slow
def test_every_fault_of_the_torture_program_leaves_local_runs_intact(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    words = [sys.executable, str(TORTURE), "--minutes", "0.1", "--engine", "local", "--json", str(table)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(table.read_text())
    assert [line["name"] for line in lines if line["engine"] == "local"] == [
        *("kill -9", "SIGINT", "SIGTERM"),
        *("flipped bit in the newest checkpoint", "read-only directory", "full disk (tmpfs)"),
    ]
    assert all(line["struck"] > 0 and line["runs"] > 0 for line in lines), lines


@pytest.mark.parametrize(
    ("said", "there", "fits"),
    [
        ("make room, then: fedpurin\nresume run", True, True),
        ("make room, then: fedpurin\nresume run", False, False),
        ("make room, then: run the same command again", False, True),
        ("make room, then: run the same command again", True, False),
    ],
)
def test_advice_that_cannot_be_followed_is_noticed(
    said: str, there: bool, fits: bool, tmp_path: Path
) -> None:
    if there:
        (tmp_path / "config.toml").touch()
    with contextlib.nullcontext() if fits else pytest.raises(AssertionError):
        assert_advice_can_be_followed(said, tmp_path)
