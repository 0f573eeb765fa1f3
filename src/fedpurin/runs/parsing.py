"""Reading the files of a run directory or of the result store, with one clear line where one is damaged."""

from __future__ import annotations

import errno
import json
import tomllib
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError
from fedpurin.files import LARGEST_CONFIGURATION, read_bounded, regular
from fedpurin.runs.shapes import RESTORE, check


def unreadable(file: Path, error: OSError) -> RunError:
    """Nothing says that the file is damaged: whoever may read it loses nothing."""
    denied = error.errno in (errno.EACCES, errno.EPERM)
    remedy = "change its permissions" if denied else RESTORE
    return RunError(f"{file} cannot be read: {error.strerror or error}; {remedy}")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl file. A torn last line, left by a crash or a run still writing, is dropped."""
    try:
        raw = regular(file).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(file, error) from error
    return parse_lines(file, raw)


def parse_lines(file: Path, raw: bytes) -> list[dict[str, Any]]:
    """The objects in these bytes of a .jsonl file."""
    pieces = raw.split(b"\n")
    pieces.pop()  # empty, or a line whose newline has not been written yet
    try:  # all at once is several times faster than line by line
        entries: Any = json.loads(b"[" + b",".join(pieces) + b"]")
    except (ValueError, RecursionError):
        entries = None
    if entries is None or len(entries) != len(pieces) or not all(isinstance(e, dict) for e in entries):
        entries = _parse_one_by_one(file, pieces)
    checked: list[dict[str, Any]] = entries
    return checked


def _parse_one_by_one(file: Path, pieces: list[bytes]) -> list[dict[str, Any]]:
    """The same, to find and name the line that is wrong."""
    entries: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces, start=1):
        try:
            entry = json.loads(piece)
        except (ValueError, RecursionError) as error:
            if number == len(pieces):
                break
            said = f"{file}, line {number} is not JSON ({error}): it is damaged; {RESTORE}"
            raise RunError(said) from error
        if not isinstance(entry, dict):
            kind = type(entry).__name__
            raise RunError(f"{file}, line {number} should be an object, not {kind}; {RESTORE}")
        entries.append(entry)
    return entries


def read_toml(file: Path, shape: Any = None) -> dict[str, Any]:
    """A TOML table of this shape."""
    try:
        table = tomllib.loads(read_bounded(file, LARGEST_CONFIGURATION).decode())
    except FileNotFoundError:
        raise RunError(f"{file.parent} is not a run directory: it has no {file.name}") from None
    except OSError as error:
        raise unreadable(file, error) from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file} cannot be read: {error}; {RESTORE}") from error
    return check(file, table, shape)


def read_json(file: Path, shape: Any = None, remedy: str = RESTORE) -> dict[str, Any] | None:
    """A JSON object of this shape, or None when the file is not there."""
    try:
        data = json.loads(regular(file).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file} is not valid JSON ({error}): it is damaged; {remedy}") from error
    if not isinstance(data, dict):
        raise RunError(f"{file} should hold a JSON object, not a {type(data).__name__}; {remedy}")
    return check(file, data, shape, remedy=remedy)
