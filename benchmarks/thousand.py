"""Thousands of clients for real: memory, time and disk of a whole run, recorded to JSON.

    python -m benchmarks.thousand                                             # a thousand, all of them
    python -m benchmarks.thousand --clients 1000 --participation 0.1 --rounds 5
    python -m benchmarks.thousand --clients 10000 --participation 0.01 --rounds 5 --models participants

ResNet-8, the bundled data with 4 training and 2 test samples each. One checkpoint after the last round, or,
where not all take part, after every round. Freed at the end: 16 GB of disk for a thousand, 4 GB for the last
line.
Processor seconds are those of the whole process tree; on a busy machine they say more than the clock. The
seconds that are not training leave out the share of the clock that workers spent in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import PeakMemory, tree
from fedpurin.bench.training import machine
from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.engines.local import available_cores
from fedpurin.engines.simulate import run_job
from fedpurin.job import Job

LIMIT_GIB = 14.0


def processor_seconds() -> float:
    """Of this process and those that it has started, the ended ones included."""
    ticks = 0
    for process in tree(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Enough(Exception):
    """The rounds are measured; the last reply to everybody was not asked for."""


class Notes(Watcher):
    def __init__(self, folder: Path, finish: bool) -> None:
        self.folder, self.finish = folder, finish
        self.seconds: list[dict[str, float]] = []
        self.spent = processor_seconds()

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        line = {name: round(s, 2) for name, s in record["seconds"].items()}
        now = processor_seconds()
        line["processor"], self.spent = round(now - self.spent, 1), now
        if "train" in line:
            line["not training"] = round(line["round"] - line["train"] / available_cores(), 1)
        line["disk MB"] = round(
            sum(f.stat().st_blocks * 512 for f in self.folder.rglob("*") if f.is_file()) / 1e6
        )
        self.seconds.append(line)
        print(f"round {record['round']}: {line}", flush=True)

    def finishing(self, asked: int) -> None:
        if not self.finish:
            raise Enough


def configured(options: argparse.Namespace) -> Config:
    every = options.rounds if options.participation == 1 else 1
    run = {"method": options.method, "clients": options.clients, "rounds": options.rounds}
    run |= {"checkpoint_every": every, "participation": options.participation}
    if options.models:  # an option that older versions do not have
        run["save_models"] = options.models
    table = {
        "run": run,
        "data": {"train_samples": 4, "test_samples": 2},
        "model": {"name": "resnet8"},
        "train": {"epochs": 1, "batch_size": 4},
    }
    return Config().updated(
        table | ({"method": {"beta": options.beta}} if options.method == "fedpurin" else {})
    )


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    job = Job.build(configured(options))
    built = time.perf_counter() - start
    notes, result = Notes(folder, not options.no_finish), {"digest": None}
    with PeakMemory() as peak, contextlib.suppress(Enough):
        result = run_job(job, folder / "run", notes)
    return {
        "machine": machine(),
        **{name: getattr(options, name) for name in ("clients", "rounds", "participation", "method", "beta")},
        "exchanged parameters": job.selection.d,
        "peak GiB, whole process tree": round(peak.bytes / 2**30, 2),
        "value matrix GiB": round(options.clients * options.participation * job.selection.d * 4 / 2**30, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "seconds to build the job": round(built, 1),
        "processor seconds": round(processor_seconds(), 1),
        "seconds by round": notes.seconds,
        "bytes": {
            what: sum(f.stat().st_blocks * 512 for f in (folder / "run" / what).rglob("*") if f.is_file())
            for what in ("checkpoints", "models")
        },
        "digest": result["digest"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--participation", type=float, default=1.0)
    parser.add_argument("--method", default="fedpurin")
    parser.add_argument("--beta", type=int, default=100)
    parser.add_argument("--models", help="run.save_models")
    parser.add_argument("--no-finish", action="store_true", help="stop before the last reply to everybody")
    parser.add_argument("--out", type=Path, help="where the run is written (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.out))
    try:
        found = measure(options, folder)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["peak GiB, whole process tree"] > LIMIT_GIB:
        raise SystemExit(f"more than {LIMIT_GIB} GiB")


if __name__ == "__main__":
    main()
