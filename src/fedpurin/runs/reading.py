"""From the files of a run directory to a `Run`: the one reader. It needs neither torch nor plotly.

Everything that `Run` relies on is checked here, so that a damaged directory ends in one clear line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import RunError
from fedpurin.runs.ledger import Ledger
from fedpurin.runs.parsing import read_json, read_lines, read_toml

MOMENTS = ("trained", "upload", "merged")
VALIDATION = "validation"  # the trained models once more, on validation samples


def read_run(path: Path) -> dict[str, Any]:
    """The fields of `Run`."""
    config = read_toml(path / "config.toml")
    people = read_json(path / "clients.json") or {}
    layout = read_json(path / "layout.json") or {}
    lines = read_lines(path / "metrics.jsonl")
    clients = client_count(path, config, people, lines)
    rounds, final = _check_metrics(path / "metrics.jsonl", lines, clients)
    classes = [str(name) for name in people.get("classes", [])]
    return {
        "path": path,
        "config": config,
        "environment": read_json(path / "environment.json") or {},
        "layers": list(layout.get("layers", [])),
        "classes": classes,
        "train_counts": _counts(path, people, "train_counts", clients, len(classes)),
        "test_counts": _counts(path, people, "test_counts", clients, len(classes)),
        "split": str(people.get("split_fingerprint", "")),
        "clients": clients,
        "lines": rounds,
        "final": final,
        "ledger": _ledger(path, layout, config, clients),
        "result": read_json(path / "result.json"),
        "names": [str(name) for name in people.get("names", [])],
    }


def measurements(line: dict[str, Any], moment: str, kind: str) -> Iterator[tuple[int, int, float]]:
    """Client, round and value: what a line of metrics.jsonl says of a moment.

    `merged` is measured one or more rounds after the round it belongs to.
    """
    part = line.get(moment) or {}
    ids = part.get("clients", line.get("clients", []))
    rounds = part.get("round", [line["round"]] * len(ids))
    for client, t, value in zip(ids, rounds, part.get(kind) or [], strict=False):
        if value is not None:
            yield client, t, value


def client_count(
    path: Path, config: dict[str, Any], people: dict[str, Any], lines: list[dict[str, Any]]
) -> int:
    """N: from clients.json, else from the config, else from the highest id seen."""
    per_client = people.get("train_samples") or people.get("train_counts")
    if per_client:
        return len(per_client)
    said = config.get("run", {}).get("clients")
    if isinstance(said, int) and said > 0:
        return said
    seen = [client for line in lines for client in line.get("clients", [])]
    if not seen:
        raise RunError(f"{path} does not say how many clients it has: clients.json is missing")
    return int(max(seen)) + 1


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
        for moment in (*MOMENTS, VALIDATION):
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
    for key in ("accuracy", "loss", "round", "best_round"):
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


def _ledger(path: Path, layout: dict[str, Any], config: dict[str, Any], clients: int) -> Ledger:
    file = path / "ledger.jsonl"
    ledger = Ledger.read(file, int(layout.get("exchanged", 0)), config)
    if len(ledger) and not 0 <= ledger.client_m.min() <= ledger.client_m.max() < clients:
        raise RunError(f"{file}: client ids must lie in 0..{clients - 1}")
    return ledger
