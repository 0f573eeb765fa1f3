"""Checkpoints: a folder per round with a file per part, which appears whole or not at all.

checkpoint.json in it holds a CRC-32 of every part, how long each log was and its CRC-32, and the settings
that it was made with. A checkpoint whose files are not as they were written, or whose logs are not, does not
count; one that was made with other settings is of another run, and nothing may go on from it. What there is
of every client lies in NAME.rows beside the folders, and a part only says where (`rows`): records that a
checkpoint needs are never written to, and what has not changed since the one before is not written again.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedpurin import files
from fedpurin.runs.rows import INDEX, check_rows

KEPT_BEFORE = 1  # checkpoints that stay beside a new one
Tensors = dict[str, Tensor]
ABOUT = {"round", "lengths", "log_checksums", "checksums", "setting", "setting_checksum"}
DAMAGED = (
    *(FileNotFoundError, NotADirectoryError, IsADirectoryError),
    *(ValueError, KeyError, TypeError, AttributeError, SafetensorError),
    RuntimeError,  # tensors of other shapes, and JSON that is nested a thousand deep
    OverflowError,  # JSON that says Infinity
)
"""What reading a checkpoint raises where it is not as it was written."""


@dataclass(frozen=True)
class Log:
    """How far a log goes."""

    length: int = 0
    crc: int = 0

    def longer(self, data: bytes) -> Log:
        return Log(self.length + len(data), zlib.crc32(data, self.crc))


@dataclass(frozen=True)
class Checkpoint:
    round: int
    parts: dict[str, Tensors]
    logs: dict[str, Log]
    setting: dict[str, Any] | None = None  # what it was made with; version 0.1 did not say


def checkpoints(folder: Path) -> list[Path]:
    """The newest comes last. As text, round-100000 would come before round-99999."""
    numbers = {path: re.fullmatch(r"round-(\d{5,})", path.name) for path in folder.glob("round-*")}
    return sorted((path for path, found in numbers.items() if found), key=_round_of)


def _round_of(path: Path) -> int:
    return int(path.name.removeprefix("round-"))


def write_checkpoint(folder: Path, made: Checkpoint) -> None:
    """Save every part as NAME.safetensors.

    Old ones go first, all but the newest before this round: the new files then take over their memory in
    the system's cache, which is several times faster than fresh memory.
    """
    temporary, final = folder / f".round-{made.round:05d}.tmp", folder / f"round-{made.round:05d}"
    earlier = [old for old in checkpoints(folder) if _round_of(old) < made.round]
    for old in checkpoints(folder):
        if old not in earlier[-KEPT_BEFORE:]:
            _put_away(old)
    files.disk.remove(temporary)
    files.disk.make_folder(temporary)
    for name, tensors in made.parts.items():
        file = temporary / f"{name}.safetensors"
        files.disk.fill(file, partial(write_tensors, tensors))
        files.disk.sync(file)
    about = {
        "round": made.round,
        "lengths": {name: log.length for name, log in made.logs.items()},
        "log_checksums": {name: log.crc for name, log in made.logs.items()},
        "checksums": {name: checksum(temporary / f"{name}.safetensors") for name in made.parts},
        "setting": made.setting,
        "setting_checksum": _of_json(made.setting),
    }
    files.write_atomic(temporary / "checkpoint.json", json.dumps(about))
    files.disk.rename(temporary, final)
    files.disk.sync(folder)


def _put_away(old: Path) -> None:
    """Half a checkpoint must not bear the name of a whole one, not even while it goes."""
    aside = old.with_name(f".{old.name}.old.tmp")
    files.disk.remove(aside)
    files.disk.rename(old, aside)
    files.disk.remove(aside)


def read_checkpoint(folder: Path, logs: dict[str, Path]) -> Checkpoint:
    """Raises one of DAMAGED where something is not as it was written."""
    about = json.loads(files.regular(folder / "checkpoint.json").read_text("utf-8"))
    if folder.name != f"round-{int(about['round']):05d}":
        raise ValueError(f"it says that it is of round {about['round']}")
    if strange := set(about) - ABOUT:
        raise ValueError(f"checkpoint.json speaks of {', '.join(sorted(strange))}")
    known = about.get("log_checksums")  # version 0.1 had none
    covered = {}
    for name, file in logs.items():
        length = int(about["lengths"][name])
        if not 0 <= length <= file.stat().st_size:
            raise ValueError(f"{name} is shorter than when it was made")
        covered[name] = Log(length, checksum(file, length))
        if known is not None and known[name] != covered[name].crc:
            raise ValueError(f"{name} is not as it was when it was made")
    setting = about.get("setting")
    if "setting" in about and about["setting_checksum"] != _of_json(setting):
        raise ValueError("its settings are not as they were when it was made")
    if not isinstance(setting, dict | None):
        raise ValueError("its settings are no table")
    if not set(about["checksums"]) <= {file.stem for file in folder.glob("*.safetensors")}:
        raise ValueError("checkpoint.json names parts that are not there")
    parts = {name: _load(folder / f"{name}.safetensors", crc) for name, crc in about["checksums"].items()}
    for tensors in parts.values():
        check_rows(folder.parent, tensors)
    return Checkpoint(int(about["round"]), parts, covered, setting)


def read_indices(folder: Path) -> Tensors:
    """Where a checkpoint's records are; nothing of one that cannot be read, for nobody will go on from it."""
    found: Tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(files.regular(file), framework="pt") as content:
                names = [name for name in content.keys() if name.endswith(INDEX)]  # noqa: SIM118 - no mapping
                found |= {name: content.get_tensor(name) for name in names}
        except (SafetensorError, OSError):
            continue
    return found


def write_tensors(tensors: Tensors, file: Path) -> None:
    """A full or failing disk is an OSError here as everywhere else."""
    try:
        save_file(tensors, file)
    except SafetensorError as problem:
        found = re.search(r"os error (\d+)", str(problem))
        if not found:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from problem


def checksum(file: Path, length: int | None = None) -> int:
    """CRC-32, read in pieces: a checkpoint may be as large as the memory."""
    crc, left = 0, file.stat().st_size if length is None else length
    with files.regular(file).open("rb") as content:
        while piece := content.read(min(2**20, left)):
            crc, left = zlib.crc32(piece, crc), left - len(piece)
    return crc


def _of_json(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _load(file: Path, crc: int) -> Tensors:
    if checksum(file) != crc:
        raise ValueError(f"{file} is not as it was written")
    return load_file(file)
