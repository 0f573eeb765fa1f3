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
from fedpurin.runs import shapes
from fedpurin.runs.ledger import Ledger
from fedpurin.runs.parsing import read_json, read_lines, read_toml
from fedpurin.shell import command

MOMENTS = ("trained", "upload", "merged")
VALIDATION = "validation"  # the trained models once more, on validation samples


def read_run(path: Path) -> dict[str, Any]:
    """The fields of `Run`."""
    without, again = "delete it to go on without it", f"delete it, then: {command('resume', path)}"
    result = read_json(path / "result.json", shapes.RESULT, again)  # first: the logs are whole if it is there
    config = read_toml(path / "config.toml", shapes.CONFIG)
    people = read_json(path / "clients.json", shapes.CLIENTS) or {}
    layout = read_json(path / "layout.json", shapes.LAYOUT) or {}
    lines = read_lines(path / "metrics.jsonl")
    for number, line in enumerate(lines, start=1):
        shapes.check(path / "metrics.jsonl", line, shapes.METRICS_LINE, f"line {number}")
    clients = client_count(path, config, people, lines)
    rounds, final = _check_metrics(path / "metrics.jsonl", lines, clients, config)
    classes = [str(name) for name in people.get("classes", [])]
    ledger = Ledger.read(path / "ledger.jsonl", int(layout.get("exchanged", 0)), config)
    if len(ledger) and not 0 <= ledger.client_m.min() <= ledger.client_m.max() < clients:
        raise RunError(f"{path / 'ledger.jsonl'}: client ids must lie in 0..{clients - 1}")
    return {
        "path": path,
        "config": config,
        "environment": read_json(path / "environment.json", shapes.ENVIRONMENT, without) or {},
        "layers": list(layout.get("layers", [])),
        "classes": classes,
        "train_counts": _counts(path, people, "train_counts", clients, len(classes)),
        "test_counts": _counts(path, people, "test_counts", clients, len(classes)),
        "split": str(people.get("split_fingerprint", "")),
        "clients": clients,
        "lines": rounds,
        "final": final,
        "ledger": ledger,
        "result": result,
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
    file: Path, lines: list[dict[str, Any]], clients: int, config: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Split off the closing line; insist on rounds, ids and list lengths that fit together."""
    by_round: dict[int, dict[str, Any]] = {}
    final = None
    last = config.get("run", {}).get("rounds", len(lines)) + 1
    for line in lines:
        t = line["round"]
        if t > last:
            raise RunError(f"{file} is damaged: a line is of round {t}, the run has {last - 1}; run again")
        for moment in (*MOMENTS, VALIDATION):
            _check_moment(file, line, moment, clients)
        if line.get("final"):
            final = line
            continue
        ids = line.setdefault("clients", [])
        for name in ("collaborators", "overlap"):
            if line.get(name) is not None and len(line[name]) != len(ids):
                raise RunError(f"{file}, round {t}: {len(line[name])} lists of {name}, {len(ids)} clients")
        if any(len(row) != len(ids) for row in line.get("overlap") or []):
            raise RunError(f"{file}, round {t}: overlap is no table of {len(ids)} x {len(ids)} clients")
        by_round[t] = line  # a round that was repeated after a crash counts once
    if missing := set(range(1, max(by_round, default=0))) - set(by_round):
        raise RunError(f"{file} is damaged: the line of round {min(missing)} is missing; {shapes.RESTORE}")
    return [by_round[t] for t in sorted(by_round)], final


def _check_moment(file: Path, line: dict[str, Any], moment: str, clients: int) -> None:
    part = line.get(moment) or {}
    ids = part.get("clients", line.get("clients", []))
    where = f"{file}, round {line['round']}, {moment}"
    if any(client >= clients for client in ids):
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
    except ValueError as error:
        message = f"{path / 'clients.json'}: {key} is not a table of {clients} clients x {classes} classes"
        raise RunError(message) from error
