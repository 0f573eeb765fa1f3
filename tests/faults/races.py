"""Two real processes at once on one directory or store: one of them gets it, the other is told so."""

from __future__ import annotations

import os
import time
from pathlib import Path

from checks import assert_nothing_half_written
from crashes import Arena, Fault, _die_at
from victims import start

from fedpurin.reproduce import queue as queues

CELL = """
[[cell]]
name = "a"
method = "fedavg"
scale = "mini"
dataset = "fashion-mnist-mini"
rounds = 1
"""
REFUSALS = ("being written by another process", "is not empty", "holds a run already", "is complete")


def two_runs(arena: Arena, count: int, until: float) -> Fault:
    """Both are told to begin, at nearly the same moment."""
    fault = Fault("two runs into one directory", arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            _race(arena, fault, ["run", str(arena.folder / "config.toml"), "--out", str(arena.path)])
    return fault


def two_resumes(arena: Arena, count: int, until: float) -> Fault:
    """Of a run that was killed."""
    fault = Fault("two resumes of one run", arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            victim = arena.start(lambda: _die_at("log append", 8))
            if victim.wait() == 0:
                continue
            _race(arena, fault, ["resume", str(arena.path)])
    return fault


def _race(arena: Arena, fault: Fault, words: list[str]) -> None:
    racers = []
    for number in range(2):
        racers.append(start(words, arena.folder / f"log-{number}.txt"))
        time.sleep(arena.draw.choice([0.0, arena.draw.uniform(0, arena.seconds)]))
    codes = sorted(racer.wait() or 0 for racer in racers)
    told = [_one_line(racer.said()) for racer in racers]
    assert codes == [0, 1], f"exit codes {codes}: {told}"
    refused = next(said for racer, said in zip(racers, told, strict=True) if racer.code)
    assert any(reason in refused for reason in REFUSALS), refused
    assert "Traceback" not in refused, refused
    fault.struck += 1
    fault.see("one did it all, the other was refused in a line")


def readers(arena: Arena, count: int, until: float) -> Fault:
    """`show`, `ledger` and `report` while a run writes."""
    fault = Fault("read while it is written", arena.engine)
    page = arena.folder / "report.html"
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            writer = arena.start()
            while writer.poll() is None and not (arena.path / "config.toml").exists():
                time.sleep(0.001)
            while writer.poll() is None:
                path = str(arena.path)
                what = arena.draw.choice(
                    [["show", path], ["ledger", path], ["report", path, "-o", str(page)]]
                )
                reader = start(what, arena.folder / "log-reader.txt")
                reader.wait()
                said = _one_line(reader.said())
                nothing = reader.code == 1 and "no finished round" in said  # a report of nothing yet
                assert reader.code == 0 or nothing, f"{what[0]}: {reader.code}: {said}"
                assert "Traceback" not in said, said
                fault.struck += 1
                fault.see(f"{what[0]}: {'nothing to tell yet' if nothing else 'whole'}")
            assert writer.code == 0, writer.said()
            assert_nothing_half_written(arena.path)
    return fault


def two_queues(folder: Path, count: int) -> Fault:
    """The first is at work on a cell when the second is started; the cell itself is only pretended."""
    fault = Fault("two queues on one store", "-")
    began = time.monotonic()
    experiments, at_work, go_on = (folder / name for name in ("experiments", "at-work", "go-on"))
    experiments.mkdir(parents=True)
    (experiments / "queue.toml").write_text(CELL)
    words = ["reproduce", "queue", "--experiments", str(experiments), "--runs", str(folder / "runs")]

    def pretend(*_: object) -> None:
        at_work.touch()
        while not go_on.exists():
            time.sleep(0.01)

    def prepare() -> None:
        queues.carry_out = pretend  # type: ignore[assignment]
        queues.os = _NoNice()  # type: ignore[attr-defined]

    for _ in range(count):
        first = start(words, folder / "log-0.txt", prepare)
        while not at_work.exists():
            assert first.poll() is None, first.said()
            time.sleep(0.01)
        second = start(words, folder / "log-1.txt", prepare)
        assert second.wait() == 1, second.said()
        assert "another queue works on" in _one_line(second.said()), second.said()
        go_on.touch()
        assert first.wait() == 0, first.said()
        at_work.unlink()
        go_on.unlink()
        fault.struck, fault.runs = fault.struck + 1, fault.runs + 1
        fault.see("the second was refused, the first went on")
    fault.seconds = time.monotonic() - began
    return fault


class _NoNice:
    """Queues give way to everything; here they must not be starved."""

    def __getattr__(self, name: str) -> object:
        return (lambda _: 0) if name == "nice" else getattr(os, name)


def _one_line(said: str) -> str:
    """Lines are broken anywhere."""
    return " ".join(said.split())
