"""Merged models with batch-norm statistics of their own: how much of "after merging" is an artefact?

A client's running statistics belong to the model it trained. After a merge its weights are others, and the
model is evaluated with statistics that do not fit it. Here they are estimated anew over the client's own
training samples, without touching a weight, from the final models of a finished run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.errors import RunError
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.result_store import ACCURACY_UNIT
from fedpurin.reproduce.source import INTERVAL, Source, column_label, gap_text, spread
from fedpurin.reproduce.stats import difference
from fedpurin.runs.same_setting import cell_key, config_of, labels, setting_key


def norms_record(path: Path, data_dir: str = "") -> dict[str, Any]:
    """The line of `norms.jsonl`: each client's accuracy with the statistics it had, and with new ones."""
    from safetensors.torch import load_file

    from fedpurin.job import Job
    from fedpurin.reproduce.perturbation import settle_norms
    from fedpurin.runs.parsing import read_toml
    from fedpurin.train import evaluate, prepare_process

    config = config_of(read_toml(path / "config.toml"))
    files = sorted((path / "models").glob("client-*.safetensors"))
    if not files:
        raise RunError(f"{path} has no final models; finish it with: fedpurin resume {path}")
    prepare_process()
    job = Job.build(config.updated({"data": {"dir": data_dir}}) if data_dir else config)
    accuracy: dict[str, list[int]] = {"merged": [], "settled": []}
    for client, file in enumerate(files):
        model, data = job.model(client), job.client_data(client)
        model.load_state_dict(load_file(file))
        for name, values in accuracy.items():
            if name == "settled":
                settle_norms(model, data)
            values.append(round(evaluate(model, data, "cpu").accuracy * ACCURACY_UNIT))
    table = config.as_dict()
    return {
        "key": cell_key(config),
        "config": table | {"data": table["data"] | {"dir": ""}},
        "accuracy": accuracy,
    }


def norms_table(source: Source) -> MarkupTable:
    """Accuracy of the final models before and after, by setting; differences client by client."""
    settings: dict[Any, list[dict[str, Any]]] = {}
    for line in source.lines("norms"):
        settings.setdefault(setting_key(line["config"]), []).append(line)
    ordered = sorted(settings.values(), key=lambda x: (_column(x[0]), x[0]["config"]["run"]["method"]))
    named = labels([lines[0]["config"] for lines in ordered], hidden=("data.dataset", "data.alpha"))
    rows: list[list[Item]] = []
    for label, lines in zip(named, ordered, strict=True):
        rounds = int(lines[0]["config"]["run"]["rounds"])
        shares = [{k: np.array(v) / ACCURACY_UNIT * 100 for k, v in x["accuracy"].items()} for x in lines]
        gap = difference([s["settled"] - s["merged"] for s in shares], rounds)
        means = [spread([float(s[name].mean()) for s in shares], []) for name in ("merged", "settled")]
        rows.append([f"{column_label(_column(lines[0]))}: {label}", *means, gap_text(gap), str(len(lines))])
    header = ["", "after the last merge", "with new batch-norm statistics", "difference", "seeds"]
    notes = [
        "Final models of finished runs, accuracy in percent; statistics estimated anew over each client's "
        f"own training samples, no weight changed. Difference: percentage points, {INTERVAL}."
    ]
    return MarkupTable("Merged models and batch norm.", header, rows, notes)


def _column(line: dict[str, Any]) -> tuple[str, float]:
    return line["config"]["data"]["dataset"], float(line["config"]["data"]["alpha"])
