"""Long runs of a tiny federation, watched from outside: memory, shared memory, files, processes, disk.

    python -m benchmarks.soak local ray flower many [--rounds 500] [--runs 300] [--json FILE]
    python -m benchmarks.soak figure                  # draws docs/figures/soak.png from the recorded figures

`many` is 300 runs in one process, one after the other, by the code that `fedpurin reproduce` runs them with,
its clients in the same process.
What a run starts and leaves behind becomes a child of this process, so it is counted
too. Each engine is watched until it ends; a growth between the first and the last third of the samples above
LIMITS is an error, and so is anything that outlives the run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import tree

RESULTS = Path(__file__).with_name("results") / "soak.json"
PR_SET_CHILD_SUBREAPER = 36
LOGS = (".jsonl", ".log", ".out", ".err")
"""A line per round, message or run: these are meant to grow, and so are the directories of `many` runs."""
Found = dict[str, Any]
LIMITS = {"MiB": 0.05, "shared MiB": 0.05, "open files": 0.05, "processes": 0.05, "disk MiB": 0.05}
"""How far a median of the last third may lie above one of the first, as a share of it ..."""
LEAST = {"MiB": 4.0, "shared MiB": 1.0, "open files": 4, "processes": 1, "disk MiB": 1.0}
"""... and, where that is less than this, how far in all."""


def config(engine: str, rounds: int) -> str:
    """Two clients with eight samples each and an MLP of 0.1 million parameters."""
    return f"""
[run]
method = "fedpurin"
engine = "{engine}"
clients = 2
rounds = {rounds}
workers = 2
[data]
train_samples = 8
test_samples = 8
[model]
name = "mlp"
[train]
epochs = 1
batch_size = 8
[method]
beta = {max(1, rounds // 2)}
"""


def adopt_orphans() -> None:
    """Processes whose parents end become children of this one, not of the system's first."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[int]:
    """All that this process started, directly or not, and that has not ended."""
    return [process for process in tree(os.getpid())[1:] if not _ended(process)]


def _ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def sample(folder: Path) -> dict[str, float]:
    kilobytes = {"Pss:": 0, "Pss_Shmem:": 0}
    files = processes = 0
    for process in descendants():
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            files += len(os.listdir(f"/proc/{process}/fd"))
        except OSError:
            continue
        processes += 1
        for line in text.splitlines():
            name, *rest = line.split()
            if name in kilobytes:
                kilobytes[name] += int(rest[0])
    disk = logs = 0
    for inside, _, names in os.walk(folder):  # passes over folders that vanish meanwhile
        for path in (Path(inside) / name for name in names):
            try:
                found = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                grows = path.suffix in LOGS or path.is_relative_to(folder / "runs")
                size = found.st_blocks * 512
                logs, disk = (logs + size, disk) if grows else (logs, disk + size)
    return {
        "MiB": round(kilobytes["Pss:"] / 1024, 2),
        "shared MiB": round(kilobytes["Pss_Shmem:"] / 1024, 2),
        "open files": files,
        "processes": processes,
        "disk MiB": round(disk / 2**20, 3),
        "logs MiB": round(logs / 2**20, 3),
    }


def done(folder: Path, what: str) -> int:
    file = (
        folder
        / ("store" if what == "many" else "run")
        / ("runs.jsonl" if what == "many" else "metrics.jsonl")
    )
    return file.read_bytes().count(b"\n") if file.exists() else 0


def watch(what: str, count: int, folder: Path, save: Callable[[Found], None], samples: int = 60) -> Found:
    """Run it to its end, a sample at every so many rounds (or runs); `save` gets what is there so far."""
    every = max(1, count // samples)
    adopt_orphans()
    (folder / "config.toml").write_text(config("local" if what == "many" else what, count))
    (folder / "tmp").mkdir()
    command = [
        sys.executable,
        "-m",
        "fedpurin",
        "run",
        str(folder / "config.toml"),
        "--out",
        str(folder / "run"),
    ]
    if what == "many":
        command = [
            sys.executable,
            "-m",
            "benchmarks.soak",
            "runs",
            "--runs",
            str(count),
            "--folder",
            str(folder),
        ]
    env = {**os.environ, "TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": str(folder / "tmp")}
    taken: list[dict[str, float]] = []
    began = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            now = done(folder, what)
            # after the last round it saves the models and ends: that is no growth over rounds
            if 0 < now <= count and (not taken or now >= taken[-1]["done"] + every):
                taken.append({"done": now, **sample(folder)})
                save({"count": now, "seconds": round(time.monotonic() - began), "samples": taken})
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(
            f"{what}: exit code {process.returncode}:\n{(folder / 'output.txt').read_text()[-2000:]}"
        )
    until = time.monotonic() + 60
    while (left := descendants()) and time.monotonic() < until:
        time.sleep(0.5)
    if left:
        raise SystemExit(f"{what}: processes {left} outlived the run")
    return {"count": done(folder, what), "seconds": round(time.monotonic() - began), "samples": taken}


def growth(samples: list[dict[str, float]], name: str) -> tuple[float, float]:
    """The medians of the first third, without what is only starting, and of the last."""
    rows = [row for row in samples if row["done"] > samples[-1]["done"] // 20] or samples
    third = max(1, len(rows) // 3)
    first, last = rows[:third], rows[-third:]
    return statistics.median(r[name] for r in first), statistics.median(r[name] for r in last)


def grown(samples: list[dict[str, float]]) -> list[str]:
    """What did not stay flat."""
    found = []
    for name, share in LIMITS.items():
        first, last = growth(samples, name)
        if last - first > max(share * first, LEAST[name]):
            found.append(f"{name} went from {first:g} to {last:g}")
    return found


def runs(count: int, folder: Path) -> None:
    """The inner process of `many`: cells that differ by their seed, run and stored by `reproduce`, clients
    included."""
    from rich.console import Console

    from fedpurin.config import Config
    from fedpurin.reproduce.execute import Means, execute, plan
    from fedpurin.reproduce.result_store import ResultStore
    from fedpurin.runs.same_setting import Cell

    cells = []
    for seed in range(1, count + 1):
        made = Config.from_text(config("inline", 2)).updated({"run": {"seed": seed}})
        cells.append(Cell(made))
    store = ResultStore(folder / "store")
    execute(plan(cells, store, folder / "runs", 1), store, Means(Console(quiet=True), workers=1))


def figure(found: dict[str, Any], file: Path) -> None:
    from matplotlib import pyplot

    from fedpurin.report.style import matplotlib_style

    names = {"local": "local", "ray": "Ray", "flower": "Flower", "many": "runs in one process"}
    with matplotlib_style():
        drawn, panels = pyplot.subplots(1, len(LIMITS), figsize=(13, 2.8), layout="constrained")
        for axes, measure in zip(panels, LIMITS, strict=True):
            for what, label in names.items():
                if what in found:
                    rows = found[what]["samples"]
                    axes.plot(
                        [100 * r["done"] / rows[-1]["done"] for r in rows],
                        [r[measure] for r in rows],
                        label=f"{label} ({rows[-1]['done']})",
                    )
            axes.set_title(measure, fontsize="medium")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("done (%)")
        drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        drawn.savefig(file, dpi=150)
        pyplot.close(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=("local", "ray", "flower", "many", "runs", "figure"))
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == ["runs"]:
        runs(options.runs, options.folder)
        return
    problems = []
    for what in options.what:
        if what == "figure":
            figure(json.loads(options.json.read_text()), RESULTS.parents[2] / "docs" / "figures" / "soak.png")
            continue
        from fedpurin.bench.training import machine  # brings torch, which a figure does not need

        about = machine()

        def save(made: Found, what: str = what, about: Found = about) -> None:
            found: Found = json.loads(options.json.read_text()) if options.json.exists() else {}
            found[what] = {"machine": about, **made}
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            made = watch(what, options.runs if what == "many" else options.rounds, Path(folder), save)
        save(made)
        for name in LIMITS:
            first, last = growth(made["samples"], name)
            print(f"{what:8}{name:12} first third {first:10g}   last third {last:10g}", flush=True)
        problems += [f"{what}: {line}" for line in grown(made["samples"])]
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
