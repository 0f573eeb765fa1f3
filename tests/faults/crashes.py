"""Faults of whole processes and real disks, each struck many times until time or count is up."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from checks import (
    assert_advice_can_be_followed,
    assert_like_an_undisturbed_run,
    assert_nothing_half_written,
)
from faulty_disk import PLACES, CountingDisk, DeadlyDisk
from sweep import COMPLETE
from victims import Victim, start, wait_until_gone, without_roots_rights

from fedpurin import files
from fedpurin.engines.local import _Worker
from fedpurin.runs.checkpoints import checkpoints
from fedpurin.runs.places import models_to_collect
from tiny import tiny_config

MOST_IN_A_ROW = 6  # faults of one run before it may end in peace
STOPPED = 130
STARTS = 3  # of Ray in a row, before a machine counts as too busy for it
LATE = "Ray did not come up within its 30 s: stopped, saying so"


@dataclass
class Fault:
    """A line of the table."""

    name: str
    engine: str
    struck: int = 0
    runs: int = 0  # complete in the end, and like an undisturbed one
    seconds: float = 0.0
    seen: dict[str, int] = field(default_factory=dict)

    def see(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


class Arena:
    """Runs of one configuration on one engine, and an undisturbed one to compare them with."""

    def __init__(self, folder: Path, engine: str, rounds: int, draw: random.Random) -> None:
        folder.mkdir(parents=True)
        self.folder, self.engine, self.draw = folder, engine, draw
        config = tiny_config(
            "fedpurin", folder, (9, 6), run__rounds=rounds, method__beta=2, run__engine=engine, run__workers=2
        )
        (folder / "config.toml").write_text(config.to_toml())
        self.path, self.undisturbed = folder / "run", folder / "undisturbed"
        began = time.monotonic()
        self.go_on(self.undisturbed)
        self.seconds = time.monotonic() - began

    def start(self, prepare: Callable[[], object] = lambda: None, path: Path | None = None) -> Victim:
        path = path or self.path
        words = ["run", str(self.folder / "config.toml"), "--out", str(path)]
        if (path / "config.toml").exists():
            words = ["resume", str(path)]
        return start(words, self.folder / "log.txt", prepare)

    def go_on(self, path: Path | None = None) -> str:
        """In peace, to the end; what was said."""
        for _ in range(STARTS):
            victim = self.start(path=path)
            if victim.wait() == 0 or not self.late(victim):
                break
        assert victim.code == 0, f"{self.engine}: exit code {victim.code}: {victim.said()}"
        return victim.said()

    def late(self, victim: Victim) -> bool:
        """Ray 2.60 gives its node 30 seconds, fixed in its code; a line says that it may be tried again."""
        said = victim.said()
        return victim.code == 1 and "Ray could not be started" in said and "Traceback" not in said

    def finish(self) -> None:
        if not (self.path / "result.json").exists() or models_to_collect(self.path):
            self.go_on()  # as the command said when it was stopped
        assert_like_an_undisturbed_run(self.path, self.undisturbed)
        shutil.rmtree(self.path)

    @contextlib.contextmanager
    def strikes(self, fault: Fault, count: int, until: float) -> Iterator[Iterator[int]]:
        """Numbers of faults to inject, until there were `count` of them and the time is up; then the rest."""
        began, in_a_row = time.monotonic(), 0

        def numbers() -> Iterator[int]:
            nonlocal in_a_row
            while fault.struck < count or time.monotonic() < until:
                yield fault.struck
                assert_nothing_half_written(self.path)
                in_a_row += 1
                if (self.path / "result.json").exists() or in_a_row >= MOST_IN_A_ROW:
                    self.finish()
                    fault.runs, in_a_row = fault.runs + 1, 0

        yield numbers()
        if in_a_row:  # also where it was struck before it had a directory
            self.finish()
            fault.runs += 1
        fault.seconds = time.monotonic() - began


def kills(arena: Arena, count: int, until: float) -> Fault:
    """SIGKILL: half of them by a timer from outside, half from inside at a chosen place."""
    fault = Fault("kill -9", arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            place = arena.draw.choice(["timer", *_places(arena.engine)])
            if place == "timer":
                victim = arena.start()
                victim.wait(arena.draw.uniform(0, arena.seconds))
            else:
                n = arena.draw.randint(1, 2 if place in ("worker start", "final save") else 12)
                victim = arena.start(lambda place=place, n=n: _die_at(place, n))
                victim.wait(10 * arena.seconds)
            family = victim.family() if victim.poll() is None else set()
            if victim.poll() is None:
                os.kill(victim.pid, signal.SIGKILL)
            if victim.wait() == 0 or arena.late(victim):
                fault.see(COMPLETE if victim.code == 0 else LATE)
                continue
            assert victim.code == -signal.SIGKILL, f"exit code {victim.code}: {victim.said()}"
            wait_until_gone(family)
            fault.struck += 1
            fault.see(place)
    return fault


def _places(engine: str) -> list[str]:
    """Where a process can be told to kill itself: not in the many processes of Flower."""
    return [] if engine == "flower" else [*PLACES, "worker start"]


def _die_at(place: str, n: int) -> None:
    if place != "worker start":
        files.disk = DeadlyDisk(place, n)
        return
    begin, left = _Worker.start, n

    def start_and_die(worker: _Worker) -> None:
        nonlocal left
        begin(worker)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _Worker.start = start_and_die  # type: ignore[method-assign]


def signals(arena: Arena, number: signal.Signals, count: int, until: float) -> Fault:
    """A polite end, at any moment: the command says how to go on, in order."""
    fault = Fault(number.name, arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            victim = arena.start()
            victim.wait(arena.draw.uniform(0.05, arena.seconds))
            family = victim.family() if victim.poll() is None else set()
            if victim.poll() is None:
                os.kill(victim.pid, number)
            if victim.wait() == 0 or arena.late(victim):
                fault.see(COMPLETE if victim.code == 0 else LATE)
                continue
            wait_until_gone(family)
            if victim.code == -number:  # before or after the command takes care of signals
                complete = (arena.path / "result.json").exists()
                assert complete or not (arena.path / "config.toml").exists(), victim.said()
                fault.struck += not complete
                fault.see(COMPLETE if complete else "ended before there was a run")
                continue
            fault.struck += 1
            assert victim.code == STOPPED, f"exit code {victim.code}: {victim.said()}"
            assert "Traceback" not in victim.said(), victim.said()
            assert "stopped" in victim.said(), victim.said()
            fault.see("stopped, saying how to go on")
    return fault


def cannot_mount() -> str:
    """Why there can be no small file system here; "" where there can."""
    return "" if os.geteuid() == 0 and shutil.which("mount") else "mounting a small disk needs root"


def full_disk(arena: Arena, count: int, until: float) -> Fault:
    """A small tmpfs that grows by pages: the run stops wherever it is full, and goes on. Flower's database
    takes megabytes; where every start takes seconds the disk is full less often in a run."""
    step, growth = {"ray": (2**13, 4), "flower": (2**19, 2**6)}.get(arena.engine, (2**12, 1))
    fault = Fault("full disk (tmpfs)", arena.engine)
    mount = arena.folder / "small"
    mount.mkdir()
    arena.path = mount / "run"
    began = time.monotonic()
    while fault.struck < count or time.monotonic() < until:
        size = step * arena.draw.randint(1, 8)
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount))
        try:
            while (victim := arena.start()).wait() != 0:
                said = victim.said()
                assert victim.code == 1, said
                assert "No space left on device" in said, said
                assert "Traceback" not in said, said
                assert_advice_can_be_followed(said, arena.path)
                assert_nothing_half_written(arena.path)
                fault.struck += 1
                fault.see("stopped, saying that the disk is full and how to go on")
                size += step * growth * arena.draw.randint(1, 4)
                _mount("-o", f"remount,size={size}", str(mount))
            arena.finish()
            fault.runs += 1
        finally:
            subprocess.run(["umount", "--lazy", str(mount)], check=True)  # stopped, its processes may linger
    fault.seconds = time.monotonic() - began
    return fault


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


class Sealed(CountingDisk):
    """The whole run directory becomes read-only before the n-th thing is done to it."""

    def __init__(self, run: Path, n: int) -> None:
        super().__init__()
        self.run, self.n = run, n

    def before(self, kind: str, path: Path) -> bool:
        if len(self.log) == self.n and self.run.is_dir():
            allow(self.run, writing=False)
        return super().before(kind, path)


def allow(run: Path, *, writing: bool) -> None:
    for path in [run, *run.rglob("*")]:
        right = 0o555 if path.is_dir() else 0o444
        path.chmod(right | 0o200 if writing else right)


def read_only(arena: Arena, count: int, until: float) -> Fault:
    fault = Fault("read-only directory", arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for number in numbers:
            n = arena.draw.randint(0, 120)

            def prepare(n: int = n) -> None:
                without_roots_rights()
                files.disk = Sealed(arena.path, n)

            if number % 4 == 3 and arena.path.is_dir():
                allow(arena.path, writing=False)  # from the start
            victim = arena.start(prepare)
            if arena.engine == "flower":  # other processes write, too
                victim.wait(arena.draw.uniform(0.5, arena.seconds))
                if victim.poll() is None and arena.path.is_dir():
                    allow(arena.path, writing=False)
            victim.wait()
            if arena.path.is_dir():
                allow(arena.path, writing=True)
            if victim.code == 0:
                fault.see(COMPLETE)
                continue
            said = victim.said()
            assert victim.code == 1, said
            assert "Permission denied" in said, said
            assert "Traceback" not in said, said
            assert_advice_can_be_followed(said, arena.path)
            fault.struck += 1
            fault.see("stopped, saying what cannot be written")
    return fault


def flipped_bits(arena: Arena, count: int, until: float) -> Fault:
    """One bit of the newest checkpoint, in any of its files: it is found, and the one before it is used. With
    Flower every other time one of a site's newest state, which the pair before it may stand in for."""
    fault = Fault("flipped bit in the newest checkpoint", arena.engine)
    with arena.strikes(fault, count, until) as numbers:
        for _ in numbers:
            victim = _killed_between_checkpoints(arena)
            kept = checkpoints(arena.path / "checkpoints") if arena.path.is_dir() else []
            if (
                victim.code == 0 or (arena.path / "result.json").exists()
            ):  # nobody reads a checkpoint any more
                fault.see(COMPLETE)
                continue
            if len(kept) < 2:
                fault.see("no second checkpoint yet")
                continue
            states = sorted(arena.path.glob("federation/site-*/*/state.safetensors"))
            if states and arena.draw.random() < 0.5:
                flip(arena.draw.choice(states), arena.draw)
                fault.struck += 1
                fault.see(_go_on_with_a_damaged_state(arena))
                continue
            file = arena.draw.choice(sorted(kept[-1].iterdir()))
            flip(file, arena.draw)
            said = "".join(arena.go_on().split())  # lines are broken anywhere
            fault.struck += 1
            assert f"{kept[-1].name}isdamaged" in said, said
            assert f"goingonafterround{int(kept[-2].name[-5:])}" in said, said
            fault.see("found; went on from the one before, and said so")
    return fault


def _go_on_with_a_damaged_state(arena: Arena) -> str:
    """Either nothing else comes of it, or its client is left out of a round and begins anew; and that is
    another run, of which there is nothing to compare."""
    said = arena.go_on()
    flat = "".join(said.split())
    assert "state.safetensorsisdamaged" in flat, said
    assert (arena.path / "result.json").exists(), said
    if "leftout" not in flat:
        return "a site's state: found; went on from the one before, and said so"
    shutil.rmtree(arena.path)
    return "a site's state: found; left out of a round, and said so"


def _killed_between_checkpoints(arena: Arena) -> Victim:
    """In round 3 or later."""
    if arena.engine != "flower":
        n = arena.draw.randint(9, 14)
        victim = arena.start(lambda: _die_at("log append", n))
        victim.wait()
        return victim
    victim = arena.start()
    while len(checkpoints(arena.path / "checkpoints")) < 2 and victim.wait(0.02) is None:
        pass
    victim.wait(arena.draw.uniform(0, 3))  # the sites may be ahead of the checkpoint by then, or not
    family = victim.family() if victim.poll() is None else set()
    if victim.poll() is None:
        os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    wait_until_gone(family)
    return victim


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = draw.randrange(8 * len(content))
    content[at // 8] ^= 1 << at % 8
    file.write_bytes(content)
