"""Everything a table or figure is made from (store, paper, request), and the words they share."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from fedpurin.reproduce.markup import Entry, Item
from fedpurin.reproduce.recipes import Column, Recipe, Variant
from fedpurin.reproduce.result_store import Record, ResultStore, finished_first
from fedpurin.reproduce.scales import DATASETS, Request, option
from fedpurin.reproduce.stats import Difference

INTERVAL = (
    "mean over clients and seeds, 95 % bootstrap interval over seeds, then clients (of one seed: over its "
    "clients only, so it holds nothing of what another split or order of samples would change; of two or "
    "three: too narrow)"
)


@dataclass(frozen=True)
class Paper:
    """The paper's printed numbers, from paper.toml beside this file."""

    table: dict[str, Any]

    @classmethod
    @lru_cache
    def load(cls) -> Paper:
        return cls(tomllib.loads((files("fedpurin.reproduce") / "paper.toml").read_text("utf-8")))

    @property
    def columns(self) -> list[tuple[str, float]]:
        return [(str(dataset), float(alpha)) for dataset, alpha in self.table["columns"]]

    def number(self, kind: str, row: str, dataset: str, alpha: float) -> float | None:
        """A cell of `accuracy`, `deviation` or `terms`; None where the paper has none."""
        values = self.table[kind].get(row)
        if values is None or (dataset, alpha) not in self.columns:
            return None
        return float(values[self.columns.index((dataset, alpha))])

    def traffic(self, dataset: str, alpha: float, method: str) -> list[float] | None:
        """MiB: up before beta, up after, down before, down after; known for one alpha."""
        values = self.table["communication"].get(dataset, {}).get(method) if alpha == 0.1 else None
        return None if values is None else [float(v) for v in values]

    def first_rounds(self, method: str) -> list[float]:
        return [float(v) for v in self.table["first-rounds"].get(method, [])]


@dataclass(frozen=True)
class Source:
    store: ResultStore
    paper: Paper
    request: Request

    def records(self, recipe: Recipe, row: Variant, column: Column) -> list[Record]:
        """The cells of a row and column of the store, one per seed; unfinished ones for want of others."""
        seeds = recipe.seeds_of(self.request)
        stored = [self.store.record(recipe.config(self.request, row, column, seed)) for seed in seeds]
        return finished_first([record for record in stored if record is not None])

    def lines(self, kind: str, datasets: Collection[str] = ()) -> list[dict[str, Any]]:
        """Lines of the store about these data sets, else about the request's; the longest runs last."""
        wanted = datasets or self.request.pick_datasets()
        lines = [x for x in self.store.lines(kind) if x["config"]["data"]["dataset"] in wanted]
        return sorted(lines, key=lambda x: (x["config"]["data"]["dataset"], x["config"]["run"]["rounds"]))


def dataset_label(dataset: str) -> str:
    return DATASETS[dataset].label if dataset in DATASETS else dataset


def seed_numbers(seeds: Iterable[int]) -> str:
    numbers = sorted(set(seeds))
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def column_label(column: Column) -> str:
    return f"{dataset_label(column[0])} α={column[1]:g}"


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
        betas = {option(recipe.config(source.request, row, column, 1), "beta") for row in rows} - {None}
        beta = betas.pop() if len(betas) == 1 else None  # where rows differ in it, they say so
        texts.append(
            f"{dataset_label(dataset)}: {c.model.name}, {c.run.clients} clients x {c.data.train_samples} "
            f"samples, {c.train.epochs} epochs, T = {c.run.rounds}" + (f", β = {beta}" if beta else "")
        )
    return "Scale: " + "; ".join(texts) + "."


def spread(values: list[float], records: list[Record], paper: float | None = None, most: int = 0) -> Item:
    """Mean and deviation over seeds of a figure that each of these records gave; `most`: seeds of others."""
    if not values:
        return "-"
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    unfinished = [record for record in records if not record.complete]
    note = f"† {min(r.done for r in unfinished)} rounds" if unfinished else ""
    if not note and len(values) < most:
        note = f"‡ {len(values)} of {most} seeds"
    return Entry(float(np.mean(values)), deviation, paper, note)


def unranked(rows: list[list[Item]]) -> list[str]:
    """What the marks in these rows mean."""
    marks = "".join(item.note[:1] for row in rows for item in row if isinstance(item, Entry))
    meanings = {
        "†": "† unfinished: best of the rounds so far, not ranked.",
        "‡": "‡ fewer seeds than others have: other clients in the mean, not ranked.",
    }
    return [meaning for mark, meaning in meanings.items() if mark in marks]


def gap_text(gap: Difference | None, *records: Record) -> str:
    """With these records' last common round where one of them is unfinished."""
    if gap is None:
        return "other clients"
    until = "" if all(record.complete for record in records) else f" (round {gap.rounds})"
    return f"{gap.text()} {gap.verdict_here}{until}"
