"""Tables of accuracy: main table, paired differences, windows, options, value types, batch norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedpurin.reproduce.markup import Entry, Item, MarkupTable, rank_columns
from fedpurin.reproduce.recipes import Recipe, Variant
from fedpurin.reproduce.result_store import ACCURACY_UNIT, Record
from fedpurin.reproduce.source import INTERVAL, Source, column_label, gap_text, scale_text, spread, unranked
from fedpurin.reproduce.stats import LAST, best_window, difference, noise, paired, paired_best, seeds_together
from fedpurin.runs.same_setting import labels

MOMENTS = {"upload": "as uploaded", "trained": "after training", "merged": "after merging"}


def accuracy_table(source: Source, recipe: Recipe) -> MarkupTable:
    """Rows of a recipe over its columns, beside the paper's where it has them."""
    columns, rows, kind = recipe.columns(source.request), [], recipe.published
    seen: list[Record] = []
    chosen = recipe.chosen_rows(source.request)
    most = {c: max(len(source.records(recipe, row, c)) for row in chosen) for c in columns}
    for row in chosen:
        items: list[Item] = [row.label]
        for column in columns:
            records = source.records(recipe, row, column)
            seen += records
            expected = source.paper.number(kind, row.id, *column) if kind else None
            items.append(best_entry(records, expected, most=most[column]))
        rows.append(items)
    rows = rank_columns(rows)
    entries = [item for row in rows for item in row if isinstance(item, Entry)]
    text = "Best round's mean over clients, as uploaded, in percent"
    text += " (the best round is picked on test data, as in the paper)"
    if any(e.paper is not None for e in entries):
        text += "; in brackets the paper's value and our difference from it"
    seeds = ", ".join(str(s) for s in sorted({r.config.run.seed for r in seen})) or "none"
    notes = [f"{text}. Seeds: {seeds}. {scale_text(source, recipe)}"]
    notes += unranked(rows)
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
            rows.append([label, *(gap_text(gap, *ours, *theirs) for gap in gaps), *counts])
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
        ours, chosen = source.records(recipe, own, column), recipe.chosen_rows(source.request)
        most = max(len(source.records(recipe, row, column)) for row in chosen)
        for row in chosen:
            records = source.records(recipe, row, column)
            if not records:
                continue
            items: list[Item] = [f"{column_label(column)}: {row.label}"]
            for moment in ("trained", "upload"):
                best = [best_window(r, moment) for r in records]
                for windows in ([slice(-LAST, None)] * len(records), best):
                    means = [r.mean(moment, w) for r, w in zip(records, windows, strict=True)]
                    items.append(spread(means, records, most=most))
                items.append(", ".join(f"{w.start + 1}-{w.stop}" for w in best))
            is_own = row.id == own.id
            items.append(
                "reference" if is_own else gap_text(paired_best(ours, records, "trained"), *ours, *records)
            )
            rows.append(items)
    header = ["", "after training: last ten", "best ten", "rounds"]
    header += ["as uploaded: last ten", "best ten", "rounds", "FedPURIN − this, best tens"]
    notes = [
        "Mean accuracy over clients and ten rounds, percent: the last ten, and each run's own best ten "
        "consecutive ones (picked on test data). Last column: FedPURIN's best ten minus the other's, "
        f"after training, percentage points; {INTERVAL}. {scale_text(source, recipe)}",
        *unranked(rows),
    ]
    return MarkupTable("Windows of ten rounds.", header, rank_columns(rows), notes)


def options_table(source: Source, recipe: Recipe) -> MarkupTable:
    """Controls and switches: accuracy at each moment, KiB, kept share, difference from the first row."""
    column, seen = recipe.columns(source.request)[0], list[Record]()
    firsts = {row.method: row for row in reversed(recipe.rows)}
    bases = {method: source.records(recipe, row, column) for method, row in firsts.items()}

    def items(row: Variant, records: list[Record]) -> list[Item]:
        seen.extend(records)
        best = [best_entry(records, None, moment) for moment in MOMENTS]
        own = row is firsts[row.method]
        gaps = ["reference"] * 3 if own else gaps_from(bases[row.method], records, tuple(MOMENTS), LAST)
        kib = [Entry(1024 * mean_mib(records, way)) for way in ("up", "down")]
        kept = float(np.mean([kept_share(record) for record in records]))
        return [*best, *gaps, *kib, f"{100 * kept:.1f} %", str(len(records))]

    header = [*MOMENTS.values(), *(f"difference, {name}" for name in MOMENTS.values())]
    header += ["KiB up", "KiB down", "kept", "seeds"]
    rows = rows_or_dashes(source, recipe, header, items)
    named = " or ".join(f"“{row.label.strip('`')}”" for row in reversed(firsts.values()))
    notes = [
        f"{column_label(column)}. Accuracy: best round, percent. Difference from the row {named}: "
        f"points over the same clients, last ten rounds (at most half); "
        f"{INTERVAL}. KiB per client and round as sent. " + scale_text(source, recipe),
        noise_note(source, seen),
    ]
    return MarkupTable("Options of FedPURIN.", ["", *header], rows, notes)


def values_table(source: Source, recipe: Recipe) -> MarkupTable:
    """What smaller values on the wire cost in accuracy and save in bytes."""
    last, column, moments = 5, recipe.columns(source.request)[0], ("upload", "merged")
    bases = {name: recipe.row(f"{name}-float32") for name in ("fedpurin", "fedavg")}
    usual = {name: source.records(recipe, base, column) for name, base in bases.items()}

    def items(row: Variant, records: list[Record]) -> list[Item]:
        up, down = (mean_mib(records, way) for way in ("up", "down"))
        means = [Entry(float(np.mean([r.mean(m, slice(-last, None)) for r in records]))) for m in moments]
        changed = row is not bases[row.method]
        gaps = gaps_from(usual[row.method], records, moments, last) if changed else ["reference"] * 2
        share = f"{100 * up / mean_mib(usual['fedavg'], 'up'):.1f} %" if usual["fedavg"] else "-"
        return [*means, *gaps, Entry(up), Entry(down), share]

    header = ["as uploaded", "after merging", "difference, as uploaded", "difference, after merging"]
    header += ["MiB up", "MiB down", "up, of FedAvg's float32"]
    rows = rows_or_dashes(source, recipe, header, items)
    notes = [
        f"{column_label(column)}. Accuracy in percent, mean over clients and the last {last} rounds. "
        "Difference from float32 of the same method: percentage points over the same clients and rounds; "
        f"{INTERVAL}. MiB per client and round as sent. " + scale_text(source, recipe)
    ]
    return MarkupTable("Types of values on the wire.", ["", *header], rows, notes)


def rows_or_dashes(
    source: Source, recipe: Recipe, header: list[str], items: Callable[[Variant, list[Record]], list[Item]]
) -> list[list[Item]]:
    """A row for each of the recipe's over its first column; dashes where the store has nothing."""
    rows: list[list[Item]] = []
    for row in recipe.chosen_rows(source.request):
        records = source.records(recipe, row, recipe.columns(source.request)[0])
        rows.append([row.label, *(items(row, records) if records else ["-"] * len(header))])
    return rows


def gaps_from(base: list[Record], records: list[Record], moments: Sequence[str], last: int) -> list[str]:
    return [gap_text(paired(records, base, moment, last), *base, *records) for moment in moments]


def norms_table(source: Source) -> MarkupTable:
    """Final models with the batch-norm statistics they had and with new ones; see norms_record."""
    settings = seeds_together(Record(line) for line in source.lines("norms"))
    settings.sort(key=lambda records: (records[0].column, records[0].config.run.method))
    configs = [records[0].line["config"] for records in settings]
    named = labels(configs, hidden=("data.dataset", "data.alpha", "run.rounds", "method.beta"))
    rows: list[list[Item]] = []
    for label, records in zip(named, settings, strict=True):
        lines = [record.line["accuracy"] for record in records]
        shares = [{k: np.array(v) / ACCURACY_UNIT * 100 for k, v in line.items()} for line in lines]
        gap = difference([s["settled"] - s["merged"] for s in shares], records[0].config.run.rounds)
        means = [spread([float(s[name].mean()) for s in shares], []) for name in ("merged", "settled")]
        length = f"T = {records[0].config.run.rounds}"
        length += f", β = {records[0].beta}" if records[0].beta else ""
        seeds = ", ".join(str(record.config.run.seed) for record in records)
        rows.append([f"{column_label(records[0].column)}: {label}, {length}", *means, gap_text(gap), seeds])
    header = ["", "after the last merge", "with new batch-norm statistics", "difference", "seeds"]
    notes = [
        "Final models of finished runs, accuracy in percent; statistics estimated anew over each client's "
        f"own training samples, no weight changed. Difference: percentage points, {INTERVAL}."
    ]
    return MarkupTable("Merged models and batch norm.", header, rows, notes)


def mean_mib(records: list[Record], way: str) -> float:
    return float(np.mean([record.mib(way).mean() for record in records]))


def kept_share(record: Record) -> float:
    """Critical share of the exchanged parameters, mean over rounds, from bytes by the paper's rule."""
    d = record.line["exchanged"]
    values = np.array(record.line["bytes"]["up_paper"], dtype=np.float64) - -(-d // 8)
    return float(values.mean() / 4 / d)


def best_entry(
    records: list[Record], paper: float | None = None, moment: str = "upload", most: int = 0
) -> Item:
    """Mean and deviation over seeds of the best round; unfinished runs say how far they came."""
    return spread([record.best(moment) for record in records], records, paper, most)


def noise_note(source: Source, records: list[Record]) -> str:
    """How far two runs of one configuration lie apart, from the replicates of these records."""
    texts = [
        f"{record.config.run.method} with another {what}: {gap.text()}"
        for record in records
        for what, gap in noise(record, source.store.records())
    ]
    said = "; ".join(dict.fromkeys(texts))
    which = "replicates, last ten rounds or half of them, after training"
    return f"Size of noise ({which}): {said or 'no replicate here yet'}."
