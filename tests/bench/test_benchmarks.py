"""The benchmarks run, at their smallest size: what `make bench` measures with is not left to rot."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (REPO / "benchmarks").glob("*.py") if not path.stem.startswith("__"))


def run(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, cwd=REPO, capture_output=True, timeout=300)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_fits_the_package(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")


def test_the_server_benchmark_counts_collaborators_and_compares_with_plain_loops(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    run(["-m", "benchmarks.server", "--clients", "3", "--repeats", "1", "--json", str(file)])
    (row,) = json.loads(file.read_text())
    assert (row["clients"], row["masks"]) == (3, "random")
    assert 0 < row["collaborators"] <= 2  # of three clients the pair that overlaps most is together
    assert row["plain / ours"] > 0


def test_the_wire_benchmark_measures_every_value_type(tmp_path: Path) -> None:
    from fedpurin import wire

    file = tmp_path / "wire.json"
    run(["benchmarks/wire.py", "--parameters", "2000", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert {row["values"].removesuffix(" packed") for row in rows} == set(wire.VALUE_TYPES)


def test_the_benchmark_of_convolutions_leaves_ours_in_place(tmp_path: Path) -> None:
    from fedpurin.models import Conv2d

    ours, file = Conv2d.forward, tmp_path / "convolutions.json"
    from benchmarks import convolutions

    row = convolutions.measure("resnet8", batch=8, steps=1, repeats=1)
    assert row["ratio"] > 0
    assert Conv2d.forward is ours
    words = ["--repeats", "1", "--steps", "1", "--batch", "8", "--json"]
    run(["-m", "benchmarks.convolutions", *words, str(file)])
    assert [row["model"] for row in json.loads(file.read_text())["rows"]] == ["resnet8", "resnet10"]


@pytest.mark.parametrize("name", ["dropouts", "peers", "liars"])
def test_the_page_about_reliability_says_what_was_measured(name: str) -> None:
    from benchmarks.reliability_tables import tables

    page = (REPO / "docs/reliability.md").read_text()
    assert tables()[name] in page, f"put it there: python -m benchmarks.reliability tables\n{tables()[name]}"
