"""Break runs on purpose, many times: `make torture MINUTES=20 SEED=7`.

    python tests/faults/torture.py [--minutes 20] [--seed 7] [--engine local,ray,flower] [--json FILE]
    python tests/faults/torture.py --minutes 0.5 --engine ray,flower --kills 50
    python tests/faults/torture.py --table FILE        # that table once more, as docs/reliability.md has it

Every run that was broken is resumed until it is complete, and must then be what an undisturbed one is; after
every fault no file may be half-written under its final name. Ends with a table; the first violation ends it
with exit code 1 and says where the run is. The same seed strikes at the same places; where a timer strikes
depends on the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])  # Flower's
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - where others are busy, 15 means never

import torch  # noqa: E402
from crashes import (  # noqa: E402
    Arena,
    Fault,
    cannot_mount,
    flipped_bits,
    full_disk,
    kills,
    read_only,
    signals,
)
from faulty_disk import FAULTS  # noqa: E402
from races import readers, two_queues, two_resumes, two_runs  # noqa: E402
from sweep import COMPLETE, Sweep, begin_or_go_on, places, short_config  # noqa: E402

from fedpurin.errors import RunError  # noqa: E402
from fedpurin.files import check_writable, write_atomic  # noqa: E402
from fedpurin.stopping import INTERRUPTED, stoppable  # noqa: E402

ENGINES = ("local", "ray", "flower")
KILLS = {"local": 50, "ray": 8, "flower": 6}  # at least so many in 20 minutes, and fewer in fewer
ROUNDS = {"local": 12, "ray": 6, "flower": 4}  # of a run
SHARES = {"disk": 0.25, "local": 0.3, "ray": 0.1, "flower": 0.1}  # of the time


class Clock:
    """Shares of the time that was given."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes

    def until(self, share: float) -> float:
        return time.monotonic() + 60 * self.minutes * share

    def at_least(self, count: int) -> int:
        return max(1, round(count * min(1.0, self.minutes / 20)))


def torture(
    folder: Path, clock: Clock, seed: int, engines: list[str], least: int | None = None
) -> Iterator[Fault]:
    draw = random.Random(seed)
    yield from disk_faults(clock, seed)
    inline = Arena(folder / "inline", "inline", 6, draw)
    yield flipped_bits(inline, clock.at_least(30), clock.until(0.03))
    yield read_only(inline, clock.at_least(30), clock.until(0.03))
    yield kills(inline, clock.at_least(100), clock.until(0.05))
    yield two_runs(inline, clock.at_least(20), clock.until(0.01))
    yield two_resumes(inline, clock.at_least(20), clock.until(0.01))
    yield readers(inline, clock.at_least(60), clock.until(0.01))
    yield two_queues(folder / "queues", clock.at_least(10))
    small_disks = not (why := cannot_mount())
    if why:
        if os.environ.get("CI") == "true":
            raise AssertionError(why)
        print(f"  left out: a full disk: {why}")
    if small_disks:
        yield full_disk(Arena(folder / "full", "inline", 6, draw), clock.at_least(30), clock.until(0.03))
    for engine in engines:
        arena = Arena(folder / engine, engine, ROUNDS[engine], draw)
        many = least or clock.at_least(KILLS[engine])
        few = max(1, many // 5)
        yield kills(arena, many, clock.until(SHARES[engine]))
        yield signals(arena, signal.SIGINT, few, clock.until(0.02))
        yield signals(arena, signal.SIGTERM, few, clock.until(0.02))
        yield flipped_bits(arena, few, clock.until(0.01))
        yield read_only(arena, few, clock.until(0.01))
        if small_disks:
            yield full_disk(arena, few, clock.until(0.01))


def disk_faults(clock: Clock, seed: int) -> Iterator[Fault]:
    """Every fault at every place of a short run, and where there is time, again in the run that resumes."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # no real sync is needed: forgetting is ours
    for fault in FAULTS:
        with tempfile.TemporaryDirectory(dir=memory) as name:
            until = clock.until(SHARES["disk"] / len(FAULTS))
            found = in_a_child(partial(sweep, fault, Path(name), clock, until, seed))
            yield Fault(**found)


def sweep(fault: str, folder: Path, clock: Clock, until: float, seed: int) -> Fault:
    began, draw = time.monotonic(), random.Random(seed)
    config = short_config(folder)
    runs = Sweep(config, folder / "undisturbed", places(config, folder / "undisturbed"))
    every = runs.every(fault)
    done = Fault("", "inline")
    for again in (None, draw):  # first every place once, in an order that ends well wherever it has to end
        for n in draw.sample(every, len(every)):
            if time.monotonic() > until and done.struck >= clock.at_least(len(every)):
                break
            for outcome, times in runs.strike(fault, n, folder, again).items():
                done.seen[outcome] = done.seen.get(outcome, 0) + times
                done.struck += times * (outcome != COMPLETE)
            done.runs += 1
    done.name = f"disk: {fault}, {min(done.runs, len(every))} of {len(every)} places"
    done.seconds = time.monotonic() - began
    return done


def warm_up() -> None:
    """What a run imports, once for all processes that are forked from this one."""
    with tempfile.TemporaryDirectory() as name:
        begin_or_go_on(short_config(Path(name)), Path(name) / "run")


def in_a_child(work: Callable[[], Fault]) -> dict[str, Any]:
    """In a process of its own: those that are forked later must find this one unused."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writing, json.dumps(asdict(work())).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "see above"
    return dict(json.loads(said))


def show(table: list[Fault]) -> None:
    print(f"\n{'fault':<44}{'engine':<8}{'injected':>9}{'runs':>6}  outcome")
    for fault in table:
        seen = ", ".join(f"{what} {times}" for what, times in sorted(fault.seen.items()))
        print(f"{fault.name:<44}{fault.engine:<8}{fault.struck:>9}{fault.runs:>6}  {seen}")
    struck, runs = sum(f.struck for f in table), sum(f.runs for f in table)
    print(f"{struck} faults in {runs} runs: all complete in the end, and as if nothing had happened")


def markdown(table: list[Fault]) -> str:
    """As docs/reliability.md has it; a test holds it to benchmarks/results/torture.json."""
    lines = ["| fault | engine | injected | in runs | what happened |", "|---|---|---|---|---|"]
    for fault in table:
        seen = ", ".join(f"{what} {times}" for what, times in sorted(fault.seen.items()))
        lines.append(f"| {fault.name} | {fault.engine} | {fault.struck} | {fault.runs} | {seen} |")
    return "\n".join(lines)


def read_table(file: Path) -> list[Fault]:
    return [Fault(**fault) for fault in json.loads(file.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--engine", default=",".join(ENGINES), help="whose processes are killed")
    parser.add_argument(
        "--kills",
        type=int,
        help="at least so many for each engine, whatever the time, and a fifth of it of its other faults",
    )
    parser.add_argument("--json", type=Path, help="write the table there too")
    parser.add_argument("--table", type=Path, help="break nothing, print what is in this file")
    options = parser.parse_args()
    if options.table:
        try:
            print(markdown(read_table(options.table)))
        except (OSError, ValueError, TypeError) as problem:
            parser.error(f"--table {options.table} holds no table that --json wrote: {problem}")
        return 0
    if not 0 <= options.minutes < math.inf:
        parser.error(f"--minutes {options.minutes}: give a number from 0 on")
    if options.json:
        try:
            check_writable(options.json)
            options.json.parent.mkdir(parents=True, exist_ok=True)
        except RunError as problem:
            parser.error(f"--json: {problem}")
    engines = [engine for engine in options.engine.split(",") if engine]
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"--engine {', '.join(sorted(unknown))}: choose from {', '.join(ENGINES)}")
    torch.set_num_threads(1)
    warm_up()
    folder = Path(tempfile.mkdtemp(prefix="fedpurin-torture-"))
    table: list[Fault] = []
    try:
        for fault in torture(folder, Clock(options.minutes), options.seed, engines, options.kills):
            table.append(fault)
            if options.json:  # whatever ends it, what was counted is there
                write_atomic(options.json, json.dumps([asdict(fault) for fault in table], indent=1) + "\n")
            print(f"  {fault.name}, {fault.engine}: {fault.struck} in {fault.seconds:.0f} s", flush=True)
    except AssertionError as problem:
        print(f"NOT INTACT: {problem}\nwhat is left of it is in {folder}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; what was broken is thrown away", file=sys.stderr)
        shutil.rmtree(folder)
        return INTERRUPTED
    show(table)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    with stoppable():  # a small disk is unmounted whatever ends this
        sys.exit(main())
