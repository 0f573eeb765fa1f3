"""Synthetic run directories that follow docs/run-directory.md to the letter, of any size, in a second or two.

The curves are made up but plausible: accuracy rises and saturates, clients with few classes do better, groups
form among clients with similar labels and dissolve after beta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from safetensors.numpy import save_file

FINAL = {"separate": 0.78, "fedavg": 0.80, "fedper": 0.81, "fedbn": 0.83, "pfedsd": 0.84, "fedcac": 0.82}
LAYERS = [
    ("pre_conv.weight", [16, 1, 3, 3], "body", True),
    ("pre_bn.weight", [16], "norm", False),
    ("stages.0.conv1.weight", [16, 16, 3, 3], "body", True),
    ("stages.0.bn1.weight", [16], "norm", False),
    ("stages.1.conv1.weight", [24, 16, 3, 3], "body", True),
    ("classifier.weight", [10, 24], "head", True),
    ("classifier.bias", [10], "head", True),
]
FASHION = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot"]


@dataclass(frozen=True)
class Spec:
    method: str = "fedpurin"
    clients: int = 10
    rounds: int = 12
    seed: int = 1
    classes: int = 10
    alpha: float = 0.1
    beta: int = 6
    tau: float = 0.5
    participation: float = 1.0
    stop_after: int | None = None  # half-way: no result.json, no closing line
    torn: bool = False  # leave half a line at the end of both files
    dataset: str = "fashion-mnist"
    model: str = "resnet8"
    curve: tuple[float, ...] = ()  # the accuracy of every client in each round, at every moment
    layers: tuple[str, ...] = ()  # other names for the exchanged layers


def make_run(path: Path, spec: Spec) -> Path:
    """Write one run directory and return its path."""
    path.mkdir(parents=True)
    rng = np.random.default_rng([spec.seed, sum(spec.method.encode())])
    layers = [dict(zip(("name", "shape", "kind", "exchanged"), row, strict=True)) for row in LAYERS]
    for name, layer in zip(spec.layers, [layer for layer in layers if layer["exchanged"]], strict=False):
        layer["name"] = name
    for layer in layers:
        layer["size"] = int(np.prod(layer["shape"]))
    counts = _class_counts(spec)
    _write_static(path, spec, layers, counts)
    metrics, ledger = _rounds(spec, rng, layers, counts)
    _write_lines(path / "metrics.jsonl", metrics, spec.torn)
    _write_lines(path / "ledger.jsonl", ledger, spec.torn)
    if spec.method in ("fedpurin", "fedcac"):
        _write_coverage(path, spec, layers, rng)
    if spec.stop_after is None:
        (path / "result.json").write_text(json.dumps(_result(spec, metrics, ledger)))
    return path


def _class_counts(spec: Spec) -> np.ndarray:
    # The split depends on the seed only, so methods of one seed share it, as in a real comparison.
    shares = np.random.RandomState(spec.seed).dirichlet([spec.alpha] * spec.classes, spec.clients)
    return np.array(
        [
            np.bincount(
                np.searchsorted(row.cumsum(), (np.arange(200) + 0.5) / 200).clip(0, spec.classes - 1),
                minlength=spec.classes,
            )
            for row in shares
        ]
    )


def _write_static(path: Path, spec: Spec, layers: list[dict[str, Any]], counts: np.ndarray) -> None:
    config = {
        "run": {
            "method": spec.method,
            "seed": spec.seed,
            "rounds": spec.rounds,
            "clients": spec.clients,
            "participation": spec.participation,
        },
        "data": {
            "dataset": spec.dataset,
            "partition": "dirichlet",
            "alpha": spec.alpha,
            "train_samples": 200,
            "test_samples": 100,
        },
        "model": {"name": spec.model},
        "train": {"epochs": 5, "batch_size": 100, "lr": 0.1, "momentum": 0.9},
        "method": {"tau": spec.tau, "beta": spec.beta, "score": "gradient", "hessian": False},
        "wire": {"values": "float32", "pack": False, "feedback": False},
    }
    (path / "config.toml").write_text(tomli_w.dumps(config))
    exchanged = sum(layer["size"] for layer in layers if layer["exchanged"])
    sizes = {
        "parameters": sum(layer["size"] for layer in layers),
        "exchanged": exchanged,
        "fingerprint": "0" * 64,
    }
    (path / "layout.json").write_text(json.dumps({**sizes, "layers": layers}))
    command = f"fedpurin run --method {spec.method} --clients {spec.clients} --seed {spec.seed}"
    environment = {
        "python": "3.11.6",
        "torch": "2.13.0",
        "cpu": "test",
        "git_commit": None,
        "command": command.split(),
    }
    (path / "environment.json").write_text(json.dumps(environment))
    names = FASHION if spec.classes == 10 else [f"class {k}" for k in range(spec.classes)]
    people = {
        "classes": names,
        "train_samples": counts.sum(axis=1).tolist(),
        "test_samples": [100] * spec.clients,
        "train_counts": counts.tolist(),
        "test_counts": (counts // 2).tolist(),
        "split_fingerprint": f"split-{spec.seed}-{spec.clients}-{spec.alpha}-{spec.dataset}",
    }
    (path / "clients.json").write_text(json.dumps(people))


def _rounds(
    spec: Spec, rng: np.random.Generator, layers: list[dict[str, Any]], counts: np.ndarray
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    metrics: list[dict[str, Any]] = []
    ledger: list[dict[str, Any]] = []
    # Few classes make an easy task; and every method helps some clients and hurts a few.
    ease = (counts.max(axis=1) / counts.sum(axis=1) - 0.5) * 0.25
    luck = np.random.default_rng(spec.seed).normal(0, 0.02, spec.clients) + rng.normal(0, 0.02, spec.clients)
    similarity = _similarity(counts)
    waiting: dict[int, int] = {}  # client -> round whose merged model it has not downloaded yet
    stop = spec.stop_after or spec.rounds
    for t in range(1, stop + 1):
        size = max(1, round(spec.participation * spec.clients))
        ids = sorted(rng.choice(spec.clients, size, replace=False).tolist())
        level = FINAL.get(spec.method, 0.85) - 0.45 * np.exp(-3 * t / max(spec.rounds, 2))
        base = np.full(spec.clients, spec.curve[t - 1]) if spec.curve else level + ease + luck
        line: dict[str, Any] = {
            "round": t,
            "clients": ids,
            "failed": [],
            "trained": _moment(rng, base, ids, spec),
            "upload": _moment(rng, base if spec.curve else base - 0.01, ids, spec),
        }
        line["merged"] = _merged(rng, base, {i: waiting.pop(i) for i in ids if i in waiting}, spec)
        if spec.method in ("fedpurin", "fedcac"):
            line |= _groups(spec, rng, t, ids, similarity, layers)
        line["seconds"] = {
            "round": 1.5,
            "train": 2.0,
            "evaluate": 0.3,
            "client": 0.2,
            "server": 0.01,
            "checkpoint": 0.1,
        }
        metrics.append(line)
        waiting |= dict.fromkeys(ids, t)
        ledger += [message for i in ids for message in _messages(spec, rng, t, i)]
    if spec.stop_after is None:
        metrics.append(
            {
                "round": spec.rounds + 1,
                "final": True,
                "merged": _merged(rng, base, waiting, spec),
                "seconds": {"round": 0.4},
            }
        )
    return metrics, ledger


def _moment(rng: np.random.Generator, base: np.ndarray, ids: list[int], spec: Spec) -> dict[str, Any]:
    accuracy = np.clip(base[ids] + rng.normal(0, 0.015, len(ids)), 0.0, 1.0).round(2)
    if spec.curve:
        accuracy = base[ids]
    return {"accuracy": accuracy.tolist(), "loss": (2 * (1 - accuracy)).round(4).tolist()}


def _merged(
    rng: np.random.Generator, base: np.ndarray, waiting: dict[int, int], spec: Spec
) -> dict[str, Any]:
    ids = sorted(waiting)
    return {
        "clients": ids,
        "round": [waiting[i] for i in ids],
        **_moment(rng, base if spec.curve else base - 0.03, ids, spec),
    }


def _similarity(counts: np.ndarray) -> np.ndarray:
    unit = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    return 0.45 + 0.4 * unit @ unit.T


def _groups(
    spec: Spec,
    rng: np.random.Generator,
    t: int,
    ids: list[int],
    similarity: np.ndarray,
    layers: list[dict[str, Any]],
) -> dict[str, Any]:
    overlap = np.clip(similarity[np.ix_(ids, ids)] + rng.normal(0, 0.02, (len(ids), len(ids))), 0, 1).round(4)
    if len(ids) > 2:
        overlap[0] -= 0.6  # a client that keeps few parameters: its overlap can be below zero
    np.fill_diagonal(overlap, 1.0)
    off = overlap[~np.eye(len(ids), dtype=bool)]
    found: dict[str, Any] = {"collaborators": [[] for _ in ids], "threshold": None}
    if len(off):
        threshold = off.mean() + t / spec.beta * (off.max() - off.mean())
        found["threshold"] = float(threshold)
        found["collaborators"] = [
            [ids[j] for j in np.flatnonzero(row >= threshold) if j != i] for i, row in enumerate(overlap)
        ]
    if len(ids) <= 64:
        found["overlap"] = overlap.tolist()
    found["kept"] = {
        layer["name"]: round(
            spec.tau * (0.7 + 0.3 * np.exp(-t / 20)) if layer["kind"] == "head" else spec.tau, 4
        )
        for layer in layers
        if layer["exchanged"]
    }
    return found


def _messages(spec: Spec, rng: np.random.Generator, t: int, client: int) -> list[dict[str, Any]]:
    if spec.method == "separate":
        return []
    d = 1_000_000
    masked = spec.method in ("fedpurin", "fedcac")
    up = int(d * spec.tau * rng.uniform(0.97, 1.0)) if spec.method == "fedpurin" else d
    down = d if t <= spec.beta else d // 3
    down = down if masked else d
    sent = []
    for direction, kept in (("up", up), ("down", down)):
        mask = d // 8 if masked and direction == "up" else 0
        sections = {"header": 64, "mask": mask, "values": 4 * kept, "meta": 60 if direction == "up" else 0}
        sent.append(
            {
                "round": t,
                "client": client,
                "direction": direction,
                "bytes": sections,
                "kept": kept,
                "paper_bytes": 4 * kept + mask,
                "mask_encoding": "bitmap" if mask else "none",
                "value_type": "float32",
            }
        )
    return sent


def _write_coverage(path: Path, spec: Spec, layers: list[dict[str, Any]], rng: np.random.Generator) -> None:
    d = sum(layer["size"] for layer in layers if layer["exchanged"])
    rounds = spec.stop_after or spec.rounds
    shown = min(3, spec.clients)
    chance = rng.beta(0.8, 0.8, d)
    counts = rng.binomial(rounds, chance, (shown, d)).astype(np.int16)
    save_file(
        {
            "client_ids": np.arange(shown, dtype=np.int64),
            "client_counts": counts,
            "server_counts": np.maximum(counts.max(axis=0), rounds // 2).astype(np.int16),
            "rounds": np.array([rounds], dtype=np.int64),
        },
        path / "coverage.safetensors",
    )


def _result(spec: Spec, metrics: list[dict[str, Any]], ledger: list[dict[str, Any]]) -> dict[str, Any]:
    """Counted with plain loops, apart from the reader's own arithmetic."""
    accuracy = {}
    for moment in ("trained", "upload", "merged"):
        rounds: dict[int, list[float]] = {}
        for line in metrics:
            part = line.get(moment, {})
            ids = part.get("clients", line.get("clients", []))
            for t, value in zip(
                part.get("round", [line["round"]] * len(ids)), part.get("accuracy", []), strict=True
            ):
                rounds.setdefault(t, []).append(value)
        means = {t: sum(values) / len(values) for t, values in sorted(rounds.items())}
        best = max(means, key=lambda t: means[t])
        tail = list(means.values())[-10:]
        accuracy[moment] = {
            "best": means[best],
            "best_round": best,
            "last": tail[-1],
            "mean_of_last_10": sum(tail) / len(tail),
            "worst_client": min(rounds[max(rounds)]),
        }
    mib = {}
    for way in ("up", "down"):
        lines = [line for line in ledger if line["direction"] == way]
        count = max(len(lines), 1) * 2**20
        mib[way] = sum(sum(line["bytes"].values()) for line in lines) / count
        mib[f"{way}_paper"] = sum(line["paper_bytes"] for line in lines) / count
    seconds = sum(line["seconds"]["round"] for line in metrics)
    return {
        "method": spec.method,
        "dataset": spec.dataset,
        "alpha": spec.alpha,
        "seed": spec.seed,
        "rounds": spec.rounds,
        "clients": spec.clients,
        "digest": "f" * 64,
        "missing_clients": [],
        "accuracy": accuracy,
        "mib_per_client_round": mib,
        "seconds": seconds,
    }


def _write_lines(file: Path, lines: list[dict[str, Any]], torn: bool) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(text + ('{"round": 999, "cli' if torn else ""))
