"""Is FedPURIN worth its bytes? Accuracy and traffic of rivals side by side: a table and a picture."""

from __future__ import annotations

from pathlib import Path

from fedpurin.reproduce import frontier
from fedpurin.reproduce.accuracy_tables import mean_mib, noise_note, rows_or_dashes
from fedpurin.reproduce.markup import Entry, Item, MarkupTable
from fedpurin.reproduce.recipes import Recipe, Variant
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import INTERVAL, Source, column_label, gap_text, scale_text, spread, unranked
from fedpurin.reproduce.stats import LAST, best_window, paired, paired_best

MOMENT = "trained"  # the model that a client has in hand


def worth_table(source: Source, recipe: Recipe) -> MarkupTable:
    column, own = recipe.columns(source.request)[0], recipe.rows[0]
    ours, levels = source.records(recipe, own, column), source.request.levels or frontier.LEVELS
    most = max(len(source.records(recipe, row, column)) for row in recipe.chosen_rows(source.request))
    seen: list[Record] = []

    def items(row: Variant, records: list[Record]) -> list[Item]:
        seen.extend(records)
        last = [record.mean(MOMENT, slice(-LAST, None)) for record in records]
        best = [record.mean(MOMENT, best_window(record, MOMENT)) for record in records]
        gaps = [paired(ours, records, MOMENT), paired_best(ours, records, MOMENT)]
        said = ["reference"] * 2 if row is own else [gap_text(gap, *ours, *records) for gap in gaps]
        mib = [Entry(mean_mib(records, way)) for way in ("up", "down")]
        reached = [frontier.mib_to(records, MOMENT, level) for level in levels]
        total = f"{frontier.mib_in_all(records):.0f}"
        means = [spread(values, records, most=most) for values in (last, best)]
        return [*means, *said, *mib, total, *reached, str(len(records))]

    header = ["last ten rounds", "best ten", "FedPURIN − this, last ten", "FedPURIN − this, best tens"]
    header += ["MiB up", "MiB down", "MiB in all", *(f"MiB to {level:g} %" for level in levels), "seeds"]
    rows = rows_or_dashes(source, recipe, header, items)
    notes = [
        f"{column_label(column)}, after training. Accuracy in percent; differences in percentage points over "
        f"the clients of the seeds that both have, {INTERVAL}. MiB per client as sent, mean over the row's "
        "own seeds: up and down a round; in all and to a level (mean of three consecutive rounds) both ways. "
        + scale_text(source, recipe),
        *unranked(rows),
        noise_note(source, seen),
    ]
    return MarkupTable("Accuracy and bytes.", ["", *header], rows, notes)


def worth_picture(source: Source, recipe: Recipe, out: Path) -> list[Path]:
    column = recipe.columns(source.request)[0]
    rows = [(row.label, source.records(recipe, row, column)) for row in recipe.chosen_rows(source.request)]
    return frontier.draw_traffic([line for line in rows if line[1]], source, out, "worth")
