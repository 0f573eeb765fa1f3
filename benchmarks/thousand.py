"""A thousand clients for real: memory and time of a whole run, recorded to JSON.

    python -m benchmarks.thousand [--clients 1000] [--rounds 3] [--out FOLDER] [--json FILE]

ResNet-8, the bundled data with 4 training and 2 test samples each, one checkpoint after the last round. Needs
about 11 GiB of memory and 16 GB of disk, which is freed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import PeakMemory
from fedpurin.bench import machine
from fedpurin.config import Config
from fedpurin.engines.driver import Watcher
from fedpurin.engines.simulate import run_job
from fedpurin.job import Job

LIMIT_GIB = 14.0


class Notes(Watcher):
    def __init__(self) -> None:
        self.seconds: list[dict[str, float]] = []

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        self.seconds.append({name: round(s, 2) for name, s in record["seconds"].items()})
        print(f"round {record['round']}: {self.seconds[-1]}", flush=True)


def measure(clients: int, rounds: int, folder: Path) -> dict[str, Any]:
    config = Config().updated(
        {
            "run": {"method": "fedpurin", "clients": clients, "rounds": rounds, "checkpoint_every": rounds},
            "data": {"train_samples": 4, "test_samples": 2},
            "model": {"name": "resnet8"},
            "train": {"epochs": 1, "batch_size": 4},
            "method": {"beta": 100},
        }
    )
    notes, start = Notes(), time.perf_counter()
    job = Job.build(config)
    with PeakMemory() as peak:
        result = run_job(job, folder / "run", notes)
    checkpoints = folder / "run" / "checkpoints"
    return {
        "machine": machine.describe(),
        "clients": clients,
        "rounds": rounds,
        "exchanged parameters": job.selection.d,
        "peak GiB, whole process tree": round(peak.bytes / 2**30, 2),
        "value matrix GiB": round(clients * job.selection.d * 4 / 2**30, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "seconds by round": notes.seconds,
        "checkpoint bytes": sum(f.stat().st_size for f in checkpoints.rglob("*.safetensors")),
        "digest": result["digest"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where the run is written (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.out))
    try:
        found = measure(options.clients, options.rounds, folder)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["peak GiB, whole process tree"] > LIMIT_GIB:
        raise SystemExit(f"more than {LIMIT_GIB} GiB")


if __name__ == "__main__":
    main()
