"""What smaller values on the wire cost in accuracy and save in bytes."""

from __future__ import annotations

import numpy as np

from fedpurin.reproduce.accuracy import Source, column_label, gap_text, scale_text
from fedpurin.reproduce.recipes import Recipe, Row
from fedpurin.reproduce.stats import paired
from fedpurin.reproduce.store import Record
from fedpurin.reproduce.tables import Entry, Item, Table

LAST = 5  # rounds that are averaged


def values_table(source: Source, recipe: Recipe) -> Table:
    """Mean accuracy of the last rounds, difference from float32 client by client, MiB as sent."""
    column = recipe.columns(source.request)[0]

    def found(row_id: str) -> list[Record]:
        return source.records(recipe, next(r for r in recipe.rows if r.id == row_id), column)

    dense = found("fedavg-float32")
    rows: list[list[Item]] = []
    for row in recipe.chosen_rows(source.request):
        records = source.records(recipe, row, column)
        if not records:
            rows.append([row.label, *["-"] * 7])
            continue
        up, down = (_mib(records, way) for way in ("up", "down"))
        rows.append(
            [
                row.label,
                Entry(_last_rounds(records, "upload")),
                Entry(_last_rounds(records, "merged")),
                *(_difference(row, records, found(f"{row.method}-float32"), m) for m in ("upload", "merged")),
                Entry(up),
                Entry(down),
                f"{100 * up / _mib(dense, 'up'):.1f} %" if dense else "-",
            ]
        )
    header = [
        "",
        "as uploaded",
        "after merging",
        "difference, as uploaded",
        "difference, after merging",
        "MiB up",
        "MiB down",
        "up, of FedAvg's float32",
    ]
    notes = [
        f"{column_label(column)}. Accuracy in percent, mean over clients and the last {LAST} rounds. "
        "Difference from float32 of the same method: percentage points over the same clients and rounds, "
        "95 % bootstrap interval over clients. MiB per client and round as sent. "
        + scale_text(source, recipe)
    ]
    return Table("Types of values on the wire.", header, rows, notes)


def _last_rounds(records: list[Record], moment: str) -> float:
    return float(100 * np.mean([np.nanmean(record.curve(moment)[-LAST:]) for record in records]))


def _mib(records: list[Record], way: str) -> float:
    return float(np.mean([record.mib(way).mean() for record in records]))


def _difference(row: Row, records: list[Record], reference: list[Record], moment: str) -> str:
    if row.table.get("wire", {}).get("values") == "float32":
        return "reference"
    return gap_text(paired(records, reference, moment, LAST))
