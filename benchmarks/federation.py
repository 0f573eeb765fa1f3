"""What a round between real processes costs: python -m benchmarks.federation [--json FILE] [--source SRC]

A whole federation on this machine (3 clients, the small MLP, 40 samples each), twice: with few rounds and
with more. What is fixed (starting, registering, ending) cancels in the difference; what remains is the time
of a round and the processor time of a message. --source measures another checkout's src, so that two
versions can be compared in one sitting.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CLIENTS = 3
FEW, MANY = 2, 8
SETTINGS = {
    "data.train_samples": 40,
    "data.test_samples": 20,
    "model.name": "mlp",
    "train.epochs": 1,
    "method.beta": 1,
}
HERE = Path(__file__).resolve().parents[1] / "src"


def one(rounds: int, source: Path, folder: Path) -> tuple[float, list[float]]:
    """Processor seconds of the command and everything it started, and the seconds of each round."""
    out = folder / f"run-{rounds}"
    command = [sys.executable, "-c", "from fedpurin.cli import main; raise SystemExit(main())"]
    command += ["federation", "up", "--clients", str(CLIENTS), "--rounds", str(rounds), "--out", str(out)]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    bin_folder = str(Path(sys.executable).parent)
    env = os.environ | {
        "PYTHONPATH": str(source),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[3:])} ended with code {process.returncode}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return usage.ru_utime + usage.ru_stime, [
        line["seconds"]["round"] for line in lines if "final" not in line
    ]


def measure(source: Path = HERE) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        few_cpu, _ = one(FEW, source, Path(name))
        many_cpu, seconds = one(MANY, source, Path(name))
    later = sorted(seconds[1:])  # the first round waits for everybody to load
    median = later[len(later) // 2]
    messages = CLIENTS * (MANY - FEW)
    return {
        "seconds of a round, median": round(median, 2),
        "rounds per minute": round(60 / median, 1),
        "processor seconds of a message": round((many_cpu - few_cpu) / messages, 2),
        "processor seconds of the whole run": round(many_cpu, 1),
        "seconds of each round": [round(s, 2) for s in seconds],
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, default=HERE, help="the src folder to measure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    figures = measure(options.source)
    for name, value in figures.items():
        print(f"{name:38s}{value!s:>12s}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
