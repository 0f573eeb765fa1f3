"""A slice of the fuzzers of files; scripts/fuzz.py runs as many as there is time for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from fedpurin.config import Config
from fedpurin.errors import ConfigError, RunError
from fedpurin.runs.parsing import read_json, read_lines, read_toml

SCRIPT = Path(__file__).parents[1] / "scripts" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("target", "count"), [("config", 150), ("split", 300), ("data", 300), ("run", 150)])
def test_changed_files_end_in_an_error_of_ours_or_are_what_they_claim(
    fuzzer: ModuleType, target: str, count: int
) -> None:
    outcomes = fuzzer.fuzz(target, count, seed=1)
    assert sum(outcomes.values()) == count
    assert outcomes["accepted"] < count, "no mutant was refused: the fuzzer reaches nothing"


DEEP = "[" * 5000


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    """The parsers of TOML and JSON recurse: found by fuzzing."""
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Config.from_text(f"[data]\nshape = {DEEP}")
    file = tmp_path / "file"
    file.write_text(f"x = {DEEP}")
    with pytest.raises(RunError, match="cannot be read"):
        read_toml(file)
    file.write_text(DEEP)
    with pytest.raises(RunError, match="is not valid JSON"):
        read_json(file)
    file.write_text(f"{DEEP}\n{{}}\n")
    with pytest.raises(RunError, match="line 1 is not JSON"):
        read_lines(file)
