"""What must hold after every fault: no half file under its final name; in the end, the same run."""

from __future__ import annotations

import json
import tomllib
import zlib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from engine_tools import assert_same_runs
from fedpurin.runs.rows import check_rows

LOGS = ("metrics.jsonl", "ledger.jsonl")


def assert_nothing_half_written(run: Path) -> None:
    """Every file is what it should be, or bears a name that says it is not there yet.

    The two logs grow by lines: their last line may be torn.
    """
    if not run.is_dir():
        return
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run)
        if not path.is_file() or inside.parts[0] == "federation" or path.name in (".lock", *LOGS):
            continue
        if any(part.startswith(".") for part in inside.parts):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".toml":
            tomllib.loads(path.read_text())
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".rows":
            continue  # records, each of which is there if a checkpoint names it: see below
        else:
            raise AssertionError(f"{path}: what is that?")
    for log in LOGS:
        if (run / log).exists():
            for line in (run / log).read_bytes().split(b"\n")[:-1]:
                json.loads(line)
    for folder in run.glob("checkpoints/round-*"):
        about = json.loads((folder / "checkpoint.json").read_text())
        for name, crc in about["checksums"].items():
            assert zlib.crc32((folder / f"{name}.safetensors").read_bytes()) == crc, f"{folder}/{name}"
            check_rows(folder.parent, load_file(folder / f"{name}.safetensors"))


def assert_advice_can_be_followed(said: str, run: Path) -> None:
    """Who is told to resume has something to resume, and who is told to run again is not refused for it."""
    there, said = (run / "config.toml").exists(), "".join(said.split())  # lines are broken anywhere
    assert there or "fedpurinresume" not in said, said
    assert not there or "runthesamecommandagain" not in said, said


def assert_like_an_undisturbed_run(run: Path, undisturbed: Path) -> None:
    """Models, masks, ledger, configuration and newest checkpoint byte for byte; metrics and result but for
    their times; and nothing left behind."""
    assert_same_runs(undisturbed, run)
    for name in ("config.toml", "layout.json", "clients.json"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes(), name
    newest = [sorted(path.glob("checkpoints/round-*"))[-1] for path in (run, undisturbed)]
    assert newest[0].name == newest[1].name
    for part in newest[1].glob("*.safetensors"):
        ours, theirs = (_but_for_places(load_file(folder / part.name)) for folder in newest)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), part
    assert _names(run) == _names(undisturbed)


def _but_for_places(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """In which slot a record lies depends on what was written before; its checksum does not."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(".slot")}


def _names(run: Path) -> list[str]:
    """Kept checkpoints apart: a run that went back may have fewer of them."""
    inside = (str(path.relative_to(run)) for path in run.rglob("*"))
    return sorted(name for name in inside if not name.startswith("checkpoints/"))
