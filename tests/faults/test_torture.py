"""The torture program itself, for as short as it can be: real kills, signals, a full disk."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checks import assert_advice_can_be_followed
from crashes import STARTS, STOPPED, Arena, Fault, signals
from sweep import COMPLETE
from victims import Victim

TORTURE = Path(__file__).with_name("torture.py")

LATE = "fedpurin: error: Ray could not be started (The current node timed out during startup.)"
OTHER = "fedpurin: error: no Ray actor could start within 300 s"


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
