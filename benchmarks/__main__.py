"""All benchmarks: python -m benchmarks [--quick] [--json FILE]

Tables on the screen, all figures in FILE (default benchmarks/results/all.json). About ten minutes on two
quiet cores; --quick leaves out servers above 100 clients and shortens the run. benchmarks.thousand is apart:
it needs 12 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import rounds, scheduling, server, startup
from fedpurin.bench import command, training

FILE = Path(__file__).with_name("results") / "all.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=FILE)
    options = parser.parse_args()
    about = training.machine()
    print(f"{about['cpu']}, {about['cores']} cores, torch {about['torch']}; load before: {about['load']:.1f}")
    found: dict[str, Any] = {"machine": about}

    def save(part: str, figures: Any) -> None:
        found[part] = figures
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    title("Training, ResNet-8")
    rates = training.measure(5)
    lines = command.summary(rates)
    for line in lines:
        print(f"{line['what']:52s}{line['value']:>10s}")
    save("training", {"medians": lines, "repeats": [asdict(r) for r in rates]})

    title("Server, one FedPURIN round")
    rows = server.run([20, 100] if options.quick else [20, 100, 300, 1000], 5)
    server.table(rows)
    save("server", rows)

    title("A run with 20 clients")
    save("round", rounds.measure(20, 6, 1 if options.quick else 5))
    rounds.table(found["round"])

    title("Unequal clients")
    save("scheduling", scheduling.measure(5))
    print({k: v if isinstance(v, list) else f"{v:.1%}" for k, v in found["scheduling"].items()})

    title("Start-up")
    save("startup", startup.measure(5))
    print({name: round(value, 3) for name, value in found["startup"].items()})

    title("Wire")
    save("wire", wire())
    print(f"\n{os.path.relpath(options.json)}")


def wire() -> Any:
    script = Path(__file__).with_name("wire.py")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wire.json"
        subprocess.run([sys.executable, str(script), "--json", str(file)], check=True)
        return json.loads(file.read_text())


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    main()
