"""What a round between real processes costs: python -m benchmarks.federation [--before SRC] [--repeat N]

    python -m benchmarks.federation --sites 8 16 32    # as many real sites as the machine holds

A whole federation on this machine (3 clients, the small MLP, 40 samples each), twice: with few rounds and
with more. What is fixed (starting, registering, ending) cancels in the difference; what remains is the time
of a round and the processor time of a message. --before measures the src folder of another checkout in turns
with this one, and tells the factors.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.memory import PeakMemory
from fedpurin.bench.training import machine
from fedpurin.federation.guard import adopt_orphans

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
FILE = Path(__file__).with_name("results") / "federation.json"
ROUND, MESSAGE = "seconds of a round", "processor seconds of a message"


def one(rounds: int, source: Path, folder: Path, clients: int = CLIENTS) -> tuple[float, list[float]]:
    """Processor seconds of the command and everything it started, and the seconds of each round."""
    out = folder / f"run-{rounds}"
    command = [sys.executable, "-c", "from fedpurin.cli import main; raise SystemExit(main())"]
    command += ["federation", "up", "--clients", str(clients), "--rounds", str(rounds), "--out", str(out)]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    bin_folder = str(Path(sys.executable).parent)
    env = os.environ | {
        "PYTHONPATH": str(source),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    before = used_by_children()
    if code := subprocess.run(command, env=env, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"{' '.join(command[3:])} ended with code {code}")
    used = used_by_children() - before
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return used, [line["seconds"]["round"] for line in lines if "final" not in line]


def used_by_children() -> float:
    """Processor seconds of all processes below this one that have ended, orphans too."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(source: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        few, _ = one(FEW, source, Path(name))
        many, seconds = one(MANY, source, Path(name))
    return {
        ROUND: [round(s, 2) for s in seconds[1:]],  # the first waits for everybody to load
        MESSAGE: round((many - few) / (CLIENTS * (MANY - FEW)), 3),
        "processor seconds of the whole run": round(many, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def crowd(sites: int) -> dict[str, Any]:
    """A federation of so many real sites on this machine: did all of them upload in every round?"""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, PeakMemory() as peak:
        used, seconds = one(3, HERE, Path(name), sites)
        lines = (Path(name) / "run-3" / "ledger.jsonl").read_text().splitlines()
        uploads = sum(json.loads(line)["direction"] == "up" for line in lines)
    return {
        "sites": sites,
        "uploads": uploads,
        ROUND: [round(s, 2) for s in seconds],
        "seconds in all": round(time.monotonic() - began, 1),
        "processor seconds": round(used, 1),
        "peak GiB": round(peak.bytes / 2**30, 2),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    seconds = median(s for run in runs for s in run[ROUND])
    figures = {f"{ROUND}, median": seconds, "rounds per minute": 60 / seconds}
    figures |= {name: median(run[name] for run in runs) for name in runs[0] if name not in (ROUND, "load")}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", type=Path, help="the src folder of another checkout, to compare with")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--sites", type=int, nargs="+", help="federations of so many sites instead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    adopt_orphans()
    if options.sites:
        crowds = []
        for sites in options.sites:
            crowds.append(crowd(sites))
            print(crowds[-1], flush=True)
        write(options.json or FILE.with_name("sites.json"), {"machine": machine(), "federations": crowds})
        return
    sources = {"before": options.before} if options.before else {}
    sources["now"] = HERE
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
    for _ in range(options.repeat):
        for name, source in sources.items():
            runs[name].append(measure(source))
    found = {name: summary(measured) for name, measured in runs.items()}
    for what, now in found["now"].items():
        then = found.get("before", {}).get(what)
        print(f"{what:38s}{f'{then:10.2f} -> ' if then else ''}{now:10.2f}")
    write(options.json or FILE, {"machine": machine(), "medians": found, "runs": runs})


def write(file: Path, found: dict[str, Any]) -> None:
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
