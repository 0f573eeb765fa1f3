"""From a run directory to the compact lines of the store.

Shapes: T rounds, N clients, c watched clients, d exchanged parameters.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import RunError
from fedpurin.job import Job
from fedpurin.reproduce.perturbation import settle_norms
from fedpurin.reproduce.result_store import ACCURACY_UNIT, identity
from fedpurin.runs.checkpoints import checkpoints
from fedpurin.runs.coverage import Coverage, read_coverage
from fedpurin.runs.models import model_file, read_model
from fedpurin.runs.run import MOMENTS, Run, load_run
from fedpurin.runs.same_setting import config_of
from fedpurin.shell import command
from fedpurin.train import evaluate, prepare_process

HEAT_MAP_LIMIT = 1200  # elements of a layer's first output kernel that a heat map keeps


def run_record(path: Path, *, partial: bool = False) -> dict[str, Any]:
    """The line of `runs.jsonl`. An unfinished run is refused unless `partial` says it is welcome."""
    run = load_run(path)
    if not run.complete and not partial:
        raise RunError(
            f"{path} is not complete ({run.rounds} of {run.planned_rounds} rounds); finish it with "
            f"{command('resume', path)}, or store what is there with --partial"
        )
    if run.rounds == 0:
        raise RunError(f"{path} has no finished round yet; import it later")
    environment = run.environment
    return {
        **identity(config_of(run.config)),
        "complete": run.complete,
        "done": run.rounds,
        "split": run.split,
        "digest": (run.result or {}).get("digest"),
        "parameters": sum(int(layer["size"]) for layer in run.layers),
        "exchanged": sum(int(layer["size"]) for layer in run.layers if layer["exchanged"]),
        "accuracy": {moment: _rounded(run.summary["accuracy"].get(moment) or {}) for moment in MOMENTS},
        "clients": {moment: _accuracies(run, moment) for moment in MOMENTS},
        "bytes": _bytes(run),
        "kept": _kept(run),
        "groups": _groups(run),
        "seconds": _seconds(run),
        "environment": {
            name: environment.get(name)
            for name in ("fedpurin", "torch", "python", "cpu", "git_commit", "git_changed", "started")
        },
    }


def _rounded(summary: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in summary.items()}


def _accuracies(run: Run, moment: str) -> list[list[int | None]] | None:
    """[T][N] in ten-thousandths; None where this moment was never measured."""
    values_tn = run.accuracy(moment)
    if np.isnan(values_tn).all():
        return None
    return [[None if np.isnan(v) else round(v * ACCURACY_UNIT) for v in row] for row in values_tn.tolist()]


def _bytes(run: Run) -> dict[str, list[int]]:
    """Mean bytes per message and round; `outside`: non-critical values in a download."""
    ledger, rounds = run.ledger, run.rounds
    ones = np.ones(len(ledger))
    table: dict[str, list[int]] = {}
    for way in ("up", "down"):
        count = np.maximum(ledger.per_round(way, ones, rounds)[1:], 1)
        columns = {way: ledger.total_m, f"{way}_paper": ledger.paper_m}
        if way == "down":
            columns["outside"] = ledger.outside_m
        for name, values in columns.items():
            table[name] = np.rint(ledger.per_round(way, values, rounds)[1:] / count).astype(int).tolist()
    return table


def _kept(run: Run) -> dict[str, list[float | None]]:
    names, shares = run.kept()
    rounded = [[None if np.isnan(v) else round(v, 4) for v in row] for row in shares.tolist()]
    return dict(zip(names, rounded, strict=True))


def _groups(run: Run) -> list[float] | None:
    """Mean number of collaborators per client and round; None for methods without groups."""
    if not any(line.get("collaborators") is not None for line in run.lines):
        return None
    groups = [line.get("collaborators") or [[]] for line in run.lines]
    return [round(float(np.mean([len(group) for group in at_once])), 2) for at_once in groups]


def _seconds(run: Run) -> dict[str, float]:
    """Sums over the rounds: train, evaluate and client over clients, the others by the wall clock."""
    total: dict[str, float] = {}
    for line in run.lines:
        for name, value in (line.get("seconds") or {}).items():
            total[name] = total.get(name, 0.0) + (value or 0.0)
    return {name: round(value, 2) for name, value in total.items()}


# Coverage


def coverage_record(path: Path) -> dict[str, Any] | None:
    """The line of `coverage.jsonl`: how often parameters were critical; None where nothing was counted."""
    run = load_run(path)
    stored = run.coverage() or _coverage_so_far(run)
    if stored is None:
        return None
    rounds = int(stored["rounds"][0])
    layers, start = [], 0
    exchanged = [layer for layer in run.layers if layer["exchanged"]]
    shown = shown_layers(exchanged)
    for layer in exchanged:
        part = slice(start, start + layer["size"])
        counts_cd = stored["client_counts"][:, part].astype(np.int64)
        server_d = stored["server_counts"][part].astype(np.int64)
        layers.append(_layer(layer, counts_cd, server_d, rounds, layer["name"] in shown))
        start = part.stop
    return {
        **identity(config_of(run.config)),
        "rounds": rounds,
        "client_ids": stored["client_ids"].tolist(),
        "never": round(float((stored["client_counts"] == 0).mean()), 6),
        "never_by_anybody": round(float((stored["client_counts"] == 0).all(axis=0).mean()), 6),
        "layers": layers,
    }


def _coverage_so_far(run: Run) -> Coverage | None:
    """Of an unfinished run: what its newest checkpoint counted."""
    files = [folder / "coverage.safetensors" for folder in checkpoints(run.path / "checkpoints")]
    return next((read_coverage(file, run.layers) for file in reversed(files) if file.is_file()), None)


def shown_layers(layers: list[dict[str, Any]]) -> list[str]:
    """First convolution, first convolution of each stage, classifier; small models: every weight matrix."""
    names = [layer["name"] for layer in layers]
    whole = ("pre_conv.weight", "classifier.weight")
    chosen = [name for name in names if name in whole or name.endswith(".conv1.weight")]
    return chosen if "pre_conv.weight" in chosen else [n for n in names if n.endswith("weight")]


def _layer(
    layer: dict[str, Any], counts_cd: NDArray[np.int64], server_d: NDArray[np.int64], rounds: int, shown: bool
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "name": layer["name"],
        "shape": layer["shape"],
        "kind": layer["kind"],
        "agreement": _agreement(counts_cd),
        "never": round(float((counts_cd == 0).mean()), 6),
        "always": round(float((counts_cd == rounds).mean()), 6),
    }
    if shown:
        rows = np.concatenate([counts_cd, server_d[None]])
        line["histogram"] = [np.bincount(row, minlength=rounds + 1).tolist() for row in rows]
        width = layer["size"] if layer["kind"] == "head" else layer["size"] // layer["shape"][0]
        if layer["kind"] == "head" or width <= HEAT_MAP_LIMIT:
            line["counts"] = pack_counts(rows[:, :width])
    return line


def _agreement(counts_cd: NDArray[np.int64]) -> float | None:
    """Mean correlation, over pairs of clients, of how often each parameter was critical."""
    varying = counts_cd[counts_cd.std(axis=1) > 0]
    if len(varying) < 2:
        return None
    matrix = np.corrcoef(varying)
    return round(float(matrix[~np.eye(len(varying), dtype=bool)].mean()), 4)


def pack_counts(rows: NDArray[np.int64]) -> str:
    return base64.b64encode(zlib.compress(rows.astype("<i2").tobytes(), 9)).decode()


def unpack_counts(text: str, rows: int) -> NDArray[np.int64]:
    flat = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i2")
    return flat.reshape(rows, -1).astype(np.int64)


# Batch norm


def norms_record(path: Path, data_dir: str = "") -> dict[str, Any]:
    """The line of `norms.jsonl`: how much of "after merging" is an artefact of batch norm?

    A client's running statistics belong to the model it trained. After a merge its weights are others, and
    the model is evaluated with statistics that do not fit it. Here they are estimated anew over the client's
    own training samples, without touching a weight, from the final models of a finished run.
    """
    run = load_run(path)
    config = config_of(run.config)
    if not any(model_file(path, client).exists() for client in range(run.clients)):
        raise RunError(f"{path} has no final models; finish it with: {command('resume', path)}")
    prepare_process()
    job = Job.build(config.updated({"data": {"dir": data_dir}}) if data_dir else config)
    accuracy: dict[str, list[int]] = {"merged": [], "settled": []}
    for client in range(run.clients):
        model, data = job.model(client), job.client_data(client)
        try:
            model.load_state_dict(read_model(path, client, run.result))
        except RuntimeError as problem:  # other names or shapes
            raise RunError(f"{model_file(path, client)} is no model of {path}: {problem}") from problem
        for name, values in accuracy.items():
            if name == "settled":
                settle_norms(model, data)
            values.append(round(evaluate(model, data, "cpu").accuracy * ACCURACY_UNIT))
    return identity(config) | {"accuracy": accuracy}
