"""Tables of accuracy: main table, score terms, paired differences, windows, options, value types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpurin.reproduce.markup import Entry, Item, MarkupTable, rank_columns
from fedpurin.reproduce.recipes import Recipe, Variant
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import (
    INTERVAL,
    Source,
    best_entry,
    column_label,
    gap_text,
    noise_note,
    scale_text,
    seeds_text,
    spread,
)
from fedpurin.reproduce.stats import LAST, best_window, paired, paired_best

MOMENTS = {"upload": "as uploaded", "trained": "after training", "merged": "after merging"}


def accuracy_table(source: Source, recipe: Recipe, kind: str) -> MarkupTable:
    """Rows of a recipe over its columns; `kind` names the paper's table, "" where it has none."""
    columns, rows = recipe.columns(source.request), []
    seen: list[Record] = []
    for row in recipe.chosen_rows(source.request):
        items: list[Item] = [row.label]
        for column in columns:
            records = source.records(recipe, row, column)
            seen += records
            expected = source.paper.number(kind, row.id, *column) if kind else None
            items.append(best_entry(records, expected))
        rows.append(items)
    rows = rank_columns(rows)
    entries = [item for row in rows for item in row if isinstance(item, Entry)]
    text = "Best round's mean over clients, as uploaded, in percent"
    text += " (the best round is picked on test data, as in the paper)"
    if any(e.paper is not None for e in entries):
        text += "; in brackets the paper's value and our difference from it"
    notes = [f"{text}. Seeds: {seeds_text(seen)}. {scale_text(source, recipe)}"]
    if any(e.note for e in entries):
        notes.append("† unfinished: best of the rounds so far, not ranked.")
    header = ["", *(column_label(column) for column in columns)]
    return MarkupTable("Accuracy in percent.", header, rows, notes)


def paired_table(source: Source, recipe: Recipe) -> MarkupTable:
    """FedPURIN minus each other method, at three moments; every row over the same clients."""
    rows: list[list[Item]] = []
    own, seen = recipe.row("fedpurin"), []
    for column in recipe.columns(source.request):
        ours = source.records(recipe, own, column)
        for row in recipe.rows:
            theirs = source.records(recipe, row, column)
            gaps = [paired(ours, theirs, moment) for moment in MOMENTS]
            if row.id == own.id or gaps[0] is None:
                continue
            seen += theirs
            counts = [str(n) for n in (gaps[0].rounds, gaps[0].seeds, gaps[0].clients)]
            label = f"{column_label(column)}: FedPURIN − {row.label}"
            rows.append([label, *(gap_text(gap) for gap in gaps), *counts])
        seen += ours
    notes = [
        "Percentage points: each client's mean accuracy over the last ten rounds (at most half) that both "
        f"runs have, FedPURIN's minus the other's; {INTERVAL}.",
        noise_note(source, seen),
    ]
    header = ["", *MOMENTS.values(), "up to round", "seeds", "clients"]
    return MarkupTable("Paired differences.", header, rows, notes)


def windows_table(source: Source, recipe: Recipe) -> MarkupTable:
    """Last ten rounds beside each method's own best ten, because some methods peak early."""
    rows: list[list[Item]] = []
    own = recipe.row("fedpurin")
    for column in recipe.columns(source.request):
        ours = source.records(recipe, own, column)
        for row in recipe.chosen_rows(source.request):
            records = source.records(recipe, row, column)
            if not records:
                continue
            items: list[Item] = [f"{column_label(column)}: {row.label}"]
            for moment in ("trained", "upload"):
                windows = [best_window(r, moment) for r in records]
                items.append(spread([r.mean(moment, slice(-LAST, None)) for r in records], records))
                items.append(
                    spread([r.mean(moment, w) for r, w in zip(records, windows, strict=True)], records)
                )
                items.append(", ".join(f"{w.start + 1}-{w.stop}" for w in windows))
            gap = None if row.id == own.id else paired_best(ours, records, "trained")
            items.append("reference" if row.id == own.id else gap_text(gap))
            rows.append(items)
    header = [
        "",
        "after training: last ten",
        "best ten",
        "rounds",
        "as uploaded: last ten",
        "best ten",
        "rounds",
    ]
    notes = [
        "Mean accuracy over clients and ten rounds, percent: the last ten, and each run's own best ten "
        "consecutive ones (picked on test data). Last column: FedPURIN's best ten minus the other's, "
        f"after training, percentage points; {INTERVAL}. {scale_text(source, recipe)}"
    ]
    return MarkupTable(
        "Windows of ten rounds.", [*header, "FedPURIN − this, best tens"], rank_columns(rows), notes
    )


def options_table(source: Source, recipe: Recipe) -> MarkupTable:
    """Controls and switches: accuracy at each moment, KiB, kept share, difference from the first row."""
    column, first = recipe.columns(source.request)[0], recipe.rows[0]
    seen: list[Record] = []

    def items(row: Variant, records: list[Record]) -> list[Item]:
        seen.extend(records)
        kib = [Entry(1024 * mean_mib(records, way)) for way in ("up", "down")]
        kept = float(np.mean([kept_share(record) for record in records]))
        best: list[Item] = [best_entry(records, None, moment) for moment in MOMENTS]
        gaps = gaps_from(source, recipe, row, first, ("upload", "trained", "merged"), LAST)
        return [*best, *gaps, *kib, f"{100 * kept:.1f} %", str(len(records))]

    header = [*MOMENTS.values(), *(f"difference, {name}" for name in MOMENTS.values())]
    header += ["KiB up", "KiB down", "kept", "seeds"]
    table = row_table(source, recipe, "Options of FedPURIN.", header, items)
    table.notes[:] = [
        f"{column_label(column)}. Accuracy: best round, percent. Difference from the row "
        f"“{first.label.strip('`')}”: points over the same clients, last ten rounds (at most half); "
        f"{INTERVAL}. KiB per client and round as sent. " + scale_text(source, recipe),
        noise_note(source, seen),
    ]
    return table


def values_table(source: Source, recipe: Recipe) -> MarkupTable:
    """What smaller values on the wire cost in accuracy and save in bytes."""
    last, column = 5, recipe.columns(source.request)[0]
    dense = source.records(recipe, recipe.row("fedavg-float32"), column)

    def items(row: Variant, records: list[Record]) -> list[Item]:
        up, down = (mean_mib(records, way) for way in ("up", "down"))
        window, moments = slice(-last, None), ("upload", "merged")
        means = [Entry(float(np.mean([r.mean(m, window) for r in records]))) for m in moments]
        gaps = gaps_from(source, recipe, row, recipe.row(f"{row.method}-float32"), moments, last)
        share = f"{100 * up / mean_mib(dense, 'up'):.1f} %" if dense else "-"
        return [*means, *gaps, Entry(up), Entry(down), share]

    header = ["as uploaded", "after merging", "difference, as uploaded", "difference, after merging"]
    header += ["MiB up", "MiB down", "up, of FedAvg's float32"]
    table = row_table(source, recipe, "Types of values on the wire.", header, items)
    table.notes[:] = [
        f"{column_label(column)}. Accuracy in percent, mean over clients and the last {last} rounds. "
        "Difference from float32 of the same method: percentage points over the same clients and rounds; "
        f"{INTERVAL}. MiB per client and round as sent. " + scale_text(source, recipe)
    ]
    return table


def row_table(
    source: Source,
    recipe: Recipe,
    title: str,
    header: list[str],
    items: Callable[[Variant, list[Record]], list[Item]],
) -> MarkupTable:
    """A row for each of the recipe's over its first column; dashes where the store has nothing."""
    rows: list[list[Item]] = []
    for row in recipe.chosen_rows(source.request):
        records = source.records(recipe, row, recipe.columns(source.request)[0])
        rows.append([row.label, *(items(row, records) if records else ["-"] * len(header))])
    return MarkupTable(title, ["", *header], rows, [])


def gaps_from(
    source: Source, recipe: Recipe, row: Variant, base: Variant, moments: tuple[str, ...], last: int
) -> list[Item]:
    column = recipe.columns(source.request)[0]
    if row is base:
        return ["reference"] * len(moments)
    ours, theirs = (source.records(recipe, each, column) for each in (row, base))
    return [gap_text(paired(ours, theirs, moment, last)) for moment in moments]


def mean_mib(records: list[Record], way: str) -> float:
    return float(np.mean([record.mib(way).mean() for record in records]))


def kept_share(record: Record) -> float:
    """Critical share of the exchanged parameters, mean over rounds, from bytes by the paper's rule."""
    d = record.line["exchanged"]
    values = np.array(record.line["bytes"]["up_paper"], dtype=np.float64) - -(-d // 8)
    return float(values.mean() / 4 / d)
