"""No change of the code changes the bytes of a run: digests recorded before, of all methods and switches.

Bits depend on the processor and on torch: digests.json has a set for each kind of machine that made one.


    python tests/engines/test_digests.py        records this machine's, from the code as it is
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import fedpurin
from fedpurin.environment import cpu_name

FILE = Path(__file__).with_name("digests.json")
STORED: dict[str, Any] = json.loads(FILE.read_text())
CELLS: dict[str, dict[str, Any]] = STORED["cells"]
QUICK = [name for name in CELLS if name.endswith("-float32-1")]


def machine() -> str:
    """What decides the bits: the processor's family and model, its vector instructions, the torch build."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    about = dict(line.split("\t: ") for line in lines if line.startswith(("cpu family\t", "model\t\t")))
    kind = "/".join(about.values())
    return f"{cpu_name()} {kind}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def digest_of(name: str, folder: Path) -> str:
    config = fedpurin.Config().updated({"run": {"engine": "inline"}}).updated(STORED["base"])
    return str(fedpurin.run(config.updated(CELLS[name]), folder / name).summary["digest"])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CELLS]
)
def test_the_bytes_of_a_run_are_what_they_were(name: str, tmp_path: Path) -> None:
    recorded = STORED["digests"].get(machine())
    if recorded is None:
        pytest.skip(f"no digests of a machine like this one ({machine()}); record them: python {__file__}")
    assert digest_of(name, tmp_path) == recorded[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        STORED["digests"][machine()] = {cell: digest_of(cell, Path(scratch)) for cell in CELLS}
    FILE.write_text(json.dumps(STORED, indent=1) + "\n")
    sys.stdout.write(f"recorded {len(CELLS)} digests for {machine()}\n")
