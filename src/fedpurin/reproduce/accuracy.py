"""Tables of accuracy: main table, score terms, controls, switches, and the paired comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpurin.reproduce.paper import Paper
from fedpurin.reproduce.recipes import Column, Recipe, Row
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.stats import Difference, paired
from fedpurin.reproduce.store import Record, Store
from fedpurin.reproduce.tables import Entry, Item, Table, rank_columns

DATASET_LABELS = {
    "fashion-mnist": "Fashion-MNIST",
    "cifar-10": "CIFAR-10",
    "cifar-100": "CIFAR-100",
    "fashion-mnist-mini": "Fashion-MNIST mini",
}
PAPER_SEEDS = 3


@dataclass(frozen=True)
class Source:
    """Everything a table or figure is made from."""

    store: Store
    paper: Paper
    request: Request

    def records(self, recipe: Recipe, row: Row, column: Column) -> list[Record]:
        """The cells of a row and column that the store has, one per seed."""
        seeds = recipe.seeds_of(self.request)
        found = [self.store.record(recipe.config(self.request, row, column, seed)) for seed in seeds]
        return [record for record in found if record is not None]


def column_label(column: Column) -> str:
    return f"{DATASET_LABELS.get(column[0], column[0])} α={column[1]:g}"


def scale_text(source: Source, recipe: Recipe) -> str:
    """What was run, in words: rounds, clients, samples, model and seeds."""
    texts = []
    for dataset in dict.fromkeys(d for d, _ in recipe.columns(source.request)):
        alpha = source.request.pick_alphas(dataset, recipe.alphas)[0]
        row = recipe.chosen_rows(source.request)[-1]
        c = recipe.config(source.request, row, (dataset, alpha), 1)
        texts.append(
            f"{DATASET_LABELS.get(dataset, dataset)}: {c.model.name}, {c.run.clients} clients x "
            f"{c.data.train_samples} samples, {c.train.epochs} epochs, "
            f"T = {c.run.rounds}, β = {c.method.beta}"
        )
    return "Scale: " + "; ".join(texts) + "."


def entry(records: list[Record], paper: float | None, moment: str = "upload") -> Item:
    """Mean and deviation over seeds of the best round; unfinished runs say how far they came."""
    if not records:
        return "-"
    values = np.array([record.best(moment) for record in records])
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    unfinished = [record for record in records if not record.complete]
    note = f"† {min(r.done for r in unfinished)} rounds" if unfinished else ""
    return Entry(float(values.mean()), spread, paper, note)


def accuracy_table(source: Source, recipe: Recipe, kind: str) -> Table:
    """Rows of a recipe over its columns; `kind` names the paper's table, "" where it has none."""
    columns, rows = recipe.columns(source.request), []
    seeds: set[int] = set()
    for row in recipe.chosen_rows(source.request):
        items: list[Item] = [row.label]
        for column in columns:
            records = source.records(recipe, row, column)
            seeds |= {record.config.run.seed for record in records}
            expected = source.paper.number(kind, row.id, *column) if kind else None
            items.append(entry(records, expected))
        rows.append(items)
    rows = rank_columns(rows)
    header = ["", *(column_label(column) for column in columns)]
    return Table("Accuracy in percent.", header, rows, _notes(source, recipe, rows, seeds))


def _notes(source: Source, recipe: Recipe, rows: list[list[Item]], seeds: set[int]) -> list[str]:
    entries = [item for row in rows for item in row if isinstance(item, Entry)]
    counted = ", ".join(str(s) for s in sorted(seeds)) or "none"
    text = "Best round's mean over clients, as uploaded, in percent"
    text += " (the best round is picked on test data, as in the paper)"
    if any(e.paper is not None for e in entries):
        text += "; in brackets the paper's value and our difference from it"
    lines = [f"{text}. Seeds: {counted}. {scale_text(source, recipe)}"]
    if any(e.note for e in entries):
        lines.append("† unfinished: best of the rounds so far, not ranked.")
    return lines


def paired_table(source: Source, recipe: Recipe) -> Table:
    """FedPURIN minus each other method, at three moments; every row over the same clients."""
    rows: list[list[Item]] = []
    own = next(row for row in recipe.rows if row.id == "fedpurin")
    for column in recipe.columns(source.request):
        ours = source.records(recipe, own, column)
        for row in recipe.rows:
            theirs = source.records(recipe, row, column)
            sent = paired(ours, theirs, "upload")
            if row.id == own.id or sent is None:
                continue
            trained = paired(ours, theirs, "trained")
            merged = paired(ours, theirs, "merged")
            rows.append(
                [
                    f"{column_label(column)}: FedPURIN − {row.label}",
                    *(gap_text(gap) for gap in (sent, trained, merged)),
                    f"{sent.rounds}",
                    f"{sent.clients}",
                ]
            )
    notes = [
        "Percentage points: each client's mean accuracy over the last ten rounds (at most half) that both "
        "runs have, FedPURIN's minus the other's; mean over clients, 95 % bootstrap interval over clients."
    ]
    header = ["", "as uploaded", "after training", "after merging", "up to round", "clients"]
    return Table("Paired differences.", header, rows, notes)


def options_table(source: Source, recipe: Recipe, base: str) -> Table:
    """Controls and switches: accuracy at each moment, MiB, kept share, paired difference from `base`."""
    rows: list[list[Item]] = []
    column = recipe.columns(source.request)[0]
    first = next(row for row in recipe.rows if row.id == base)
    reference = source.records(recipe, first, column)
    seeds: set[int] = set()
    for row in recipe.chosen_rows(source.request):
        records = source.records(recipe, row, column)
        if not records:
            rows.append([row.label, *["-"] * 9])
            continue
        seeds |= {record.config.run.seed for record in records}
        gap = None if row is first else paired(records, reference)
        merged = None if row is first else paired(records, reference, "merged")
        kept = float(np.mean([kept_share(record) for record in records]))
        rows.append(
            [
                row.label,
                entry(records, None),
                entry(records, None, "trained"),
                entry(records, None, "merged"),
                "reference" if row is first else gap_text(gap),
                "reference" if row is first else gap_text(merged),
                *(
                    Entry(float(np.mean([r.mib(way).mean() for r in records]) * 1024))
                    for way in ("up", "down")
                ),
                f"{100 * kept:.1f} %",
                str(len(records)),
            ]
        )
    header = [
        "",
        "as uploaded",
        "after training",
        "after merging",
        "difference, as uploaded",
        "difference, after merging",
        "KiB up",
        "KiB down",
        "kept",
        "seeds",
    ]
    notes = [
        f"{column_label(column)}. Accuracy: best round, percent. Difference from the row "
        f"“{first.label.strip('`')}”: percentage points over the same clients, last rounds, 95 % bootstrap "
        "interval. KiB per client and round as sent. " + scale_text(source, recipe)
    ]
    return Table("Options of FedPURIN.", header, rows, notes)


def gap_text(gap: Difference | None) -> str:
    return "other clients" if gap is None else f"{gap.text()} {gap.verdict}"


def kept_share(record: Record) -> float:
    """Critical share of the exchanged parameters, mean over rounds, from bytes by the paper's rule."""
    d = record.line["exchanged"]
    values = np.array(record.line["bytes"]["up_paper"], dtype=np.float64) - -(-d // 8)
    return float(values.mean() / 4 / d)
