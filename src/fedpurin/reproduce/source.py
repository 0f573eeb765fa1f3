"""Everything a table or figure is made from, and the words they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpurin.reproduce.markup import Entry, Item
from fedpurin.reproduce.published import Paper
from fedpurin.reproduce.recipes import Column, Recipe, Variant
from fedpurin.reproduce.result_store import Record, ResultStore
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.stats import Difference, noise

DATASET_LABELS = {
    "fashion-mnist": "Fashion-MNIST",
    "cifar-10": "CIFAR-10",
    "cifar-100": "CIFAR-100",
    "fashion-mnist-mini": "Fashion-MNIST mini",
}


@dataclass(frozen=True)
class Source:
    store: ResultStore
    paper: Paper
    request: Request

    def records(self, recipe: Recipe, row: Variant, column: Column) -> list[Record]:
        """The cells of a row and column that the store has, one per seed."""
        seeds = recipe.seeds_of(self.request)
        stored = [self.store.record(recipe.config(self.request, row, column, seed)) for seed in seeds]
        return [record for record in stored if record is not None]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Lines of the store about the data sets of the request, the longest runs last."""
        wanted = self.request.pick_datasets(None)
        lines = [x for x in self.store.lines(kind) if x["config"]["data"]["dataset"] in wanted]
        return sorted(lines, key=lambda x: (x["config"]["data"]["dataset"], x["config"]["run"]["rounds"]))


def dataset_label(dataset: str) -> str:
    return DATASET_LABELS.get(dataset, dataset)


def column_label(column: Column) -> str:
    return f"{dataset_label(column[0])} α={column[1]:g}"


def record_column(record: Record) -> Column:
    return record.config.data.dataset, record.config.data.alpha


def describe_line(line: dict[str, Any]) -> str:
    """Data, model and length behind a line of checks or counts."""
    config = line["config"]
    column = f"{dataset_label(config['data']['dataset'])}, α={config['data']['alpha']:g}"
    length = f"{config['run']['rounds']} x {config['train']['epochs']} local epochs"
    return f"{column}, {config['model']['name']}, {length}"


def scale_text(source: Source, recipe: Recipe) -> str:
    """What was run, in words: rounds, clients, samples, model and seeds."""
    texts = []
    for dataset in dict.fromkeys(d for d, _ in recipe.columns(source.request)):
        column = (dataset, source.request.pick_alphas(dataset, recipe.alphas)[0])
        rows = recipe.chosen_rows(source.request)
        c = recipe.config(source.request, rows[-1], column, 1)
        beta = recipe.beta(source.request, rows, column)
        texts.append(
            f"{dataset_label(dataset)}: {c.model.name}, {c.run.clients} clients x {c.data.train_samples} "
            f"samples, {c.train.epochs} epochs, T = {c.run.rounds}" + (f", β = {beta}" if beta else "")
        )
    return "Scale: " + "; ".join(texts) + "."


def best_entry(records: list[Record], paper: float | None = None, moment: str = "upload") -> Item:
    """Mean and deviation over seeds of the best round; unfinished runs say how far they came."""
    return spread([record.best(moment) for record in records], records, paper)


def spread(values: list[float], records: list[Record], paper: float | None = None) -> Item:
    """Mean and deviation over seeds of a figure that each of these records gave."""
    if not values:
        return "-"
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    unfinished = [record for record in records if not record.complete]
    note = f"† {min(r.done for r in unfinished)} rounds" if unfinished else ""
    return Entry(float(np.mean(values)), deviation, paper, note)


def gap_text(gap: Difference | None) -> str:
    return "other clients" if gap is None else f"{gap.text()} {gap.verdict}"


def seeds_text(records: list[Record]) -> str:
    return ", ".join(str(s) for s in sorted({r.config.run.seed for r in records})) or "none"


INTERVAL = (
    "mean over clients and seeds, 95 % bootstrap interval over seeds, then clients (of one seed: over its "
    "clients only, so it holds nothing of what another split would change)"
)


def noise_note(source: Source, records: list[Record]) -> str:
    """How far two runs of one configuration lie apart, from the replicates of these records."""
    texts = [
        f"{record.config.run.method} with another {what}: {gap.text()}"
        for record in records
        for what, gap in noise(record, source.store.records())
    ]
    said = "; ".join(dict.fromkeys(texts))
    return f"Size of noise (replicates, last ten rounds, after training): {said or 'no replicate here yet'}."
