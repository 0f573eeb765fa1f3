"""Parsing and checking the files of a run directory, for `load.load_run`.

Everything that `Run` relies on is checked here, so that a damaged directory ends in one clear line.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import RunError
from fedpurin.report.load import MOMENTS, SECTIONS, Ledger, Run


def read_run(path: Path) -> Run:
    config = read_toml(path / "config.toml")
    people = read_json(path / "clients.json") or {}
    layout = read_json(path / "layout.json") or {}
    lines = read_lines(path / "metrics.jsonl")
    clients = client_count(path, config, people, lines)
    rounds, final = _check_metrics(path / "metrics.jsonl", lines, clients)
    classes = [str(name) for name in people.get("classes", [])]
    return Run(
        path=path,
        config=config,
        environment=read_json(path / "environment.json") or {},
        layers=list(layout.get("layers", [])),
        classes=classes,
        train_counts=_counts(path, people, "train_counts", clients, len(classes)),
        test_counts=_counts(path, people, "test_counts", clients, len(classes)),
        split=str(people.get("split_fingerprint", "")),
        clients=clients,
        lines=rounds,
        final=final,
        ledger=_ledger(path / "ledger.jsonl", clients),
        result=read_json(path / "result.json"),
    )


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl file. A torn last line, left by a crash or a run still writing, is dropped."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    pieces = raw.split(b"\n")
    pieces.pop()  # empty, or a line whose newline has not been written yet
    try:  # all at once is several times faster than line by line
        found = json.loads(b"[" + b",".join(pieces) + b"]")
    except ValueError:
        found = None
    if found is None or len(found) != len(pieces) or not all(isinstance(entry, dict) for entry in found):
        found = _parse_one_by_one(file, pieces)
    return found


def _parse_one_by_one(file: Path, pieces: list[bytes]) -> list[dict[str, Any]]:
    """The same, to find and name the line that is wrong."""
    found: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces, start=1):
        try:
            entry = json.loads(piece)
        except ValueError as error:
            if number == len(pieces):
                break
            raise RunError(f"{file}, line {number} is not JSON ({error}); the file is damaged") from error
        if not isinstance(entry, dict):
            raise RunError(f"{file}, line {number} should be an object, not {type(entry).__name__}")
        found.append(entry)
    return found


def client_count(
    path: Path, config: dict[str, Any], people: dict[str, Any], lines: list[dict[str, Any]]
) -> int:
    """N: from clients.json, else from the config, else from the highest id seen."""
    known = people.get("train_samples") or people.get("train_counts")
    if known:
        return len(known)
    said = config.get("run", {}).get("clients")
    if isinstance(said, int) and said > 0:
        return said
    seen = [client for line in lines for client in line.get("clients", [])]
    if not seen:
        raise RunError(f"{path} does not say how many clients it has: clients.json is missing")
    return max(seen) + 1


def _check_metrics(
    file: Path, lines: list[dict[str, Any]], clients: int
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Split off the closing line; insist on rounds, ids and list lengths that fit together."""
    by_round: dict[int, dict[str, Any]] = {}
    final = None
    for line in lines:
        t = line.get("round")
        if not isinstance(t, int) or t < 1:
            raise RunError(f"{file}: a line has round {t!r}; rounds are whole numbers from 1")
        for moment in MOMENTS:
            _check_moment(file, line, moment, clients)
        if line.get("final"):
            final = line
            continue
        ids = line.setdefault("clients", [])
        groups = line.get("collaborators")
        if groups is not None and len(groups) != len(ids):
            raise RunError(f"{file}, round {t}: {len(groups)} collaborator lists for {len(ids)} clients")
        by_round[t] = line  # a round that was repeated after a crash counts once
    return [by_round[t] for t in sorted(by_round)], final


def _check_moment(file: Path, line: dict[str, Any], moment: str, clients: int) -> None:
    part = line.get(moment) or {}
    ids = part.get("clients", line.get("clients", []))
    where = f"{file}, round {line['round']}, {moment}"
    if any(not isinstance(client, int) or not 0 <= client < clients for client in ids):
        raise RunError(f"{where}: client ids must lie in 0..{clients - 1}")
    for key in ("accuracy", "loss", "round"):
        if part.get(key) is not None and len(part[key]) != len(ids):
            raise RunError(f"{where}: {len(part[key])} values of {key} for {len(ids)} clients")


def _counts(path: Path, people: dict[str, Any], key: str, clients: int, classes: int) -> NDArray[np.int64]:
    rows = people.get(key)
    if not rows:
        return np.zeros((clients, 0), dtype=np.int64)
    try:
        return np.array(rows, dtype=np.int64).reshape(clients, classes)
    except (ValueError, TypeError) as error:
        message = f"{path / 'clients.json'}: {key} is not a table of {clients} clients x {classes} classes"
        raise RunError(message) from error


def _ledger(file: Path, clients: int) -> Ledger:
    lines = read_lines(file)
    try:
        sections = [[line["bytes"].get(name, 0) for name in SECTIONS] for line in lines]
        ledger = Ledger(
            round_m=np.array([line["round"] for line in lines], dtype=np.int64),
            client_m=np.array([line["client"] for line in lines], dtype=np.int64),
            up_m=np.array([line["direction"] == "up" for line in lines], dtype=np.bool_),
            sections_ms=np.array(sections, dtype=np.int64).reshape(len(lines), len(SECTIONS)),
            kept_m=np.array([line.get("kept", 0) for line in lines], dtype=np.int64),
            paper_m=np.array([line.get("paper_bytes", 0) for line in lines], dtype=np.int64),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} has a line that is not a message ({error!r}); it is damaged") from error
    if len(ledger) and (ledger.client_m.min() < 0 or ledger.client_m.max() >= clients):
        raise RunError(f"{file}: client ids must lie in 0..{clients - 1}")
    if len(ledger) and ledger.round_m.min() < 0:
        raise RunError(f"{file}: rounds must not be negative")
    return ledger


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError(f"{file.parent} is not a run directory: it has no {file.name}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RunError(f"{file} cannot be read: {error}") from error


def read_json(file: Path) -> dict[str, Any] | None:
    """A JSON object, or None when the file is not there."""
    try:
        data = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise RunError(f"{file} is not valid JSON ({error}); the run directory is damaged") from error
    if not isinstance(data, dict):
        raise RunError(f"{file} should hold a JSON object, not a {type(data).__name__}")
    return data
