"""What the store holds: every run, the first rounds beside the authors', and the size of noise."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import trains_as_published
from fedpurin.reproduce.source import Source, column_label, describe_line
from fedpurin.reproduce.stats import LAST, SEED_NAMES, by_setting, replicates


def first_rounds(source: Source) -> MarkupTable:
    """CIFAR-10, alpha 0.5, seed 1: the authors' curve beside ours, round by round."""
    rows: list[list[Item]] = []
    longest = max((len(source.paper.first_rounds(m)) for m in ("fedpurin", "fedavg")), default=0)
    for method, label in (("fedpurin", "FedPURIN"), ("fedavg", "FedAvg")):
        rows.append([f"{label}, authors", *_padded(source.paper.first_rounds(method), longest)])
        for beta, record in sorted(_long_runs(source, method).items(), reverse=True):
            ours = f"{label}, ours" + (f", β = {beta}" if beta else "")
            rows.append([ours, *_padded(record.curve().tolist(), longest)])
    header = ["as uploaded, round", *(str(t) for t in range(1, longest + 1)), f"mean of 1-{longest}"]
    notes = [
        "CIFAR-10, α=0.5, seed 1, mean accuracy over the 20 clients; same split, another order of samples."
    ]
    return MarkupTable("The first rounds.", header, rows, notes)


def _padded(values: list[float], length: int) -> list[Item]:
    texts = [f".{round(1000 * v):03d}" for v in values[:length]]
    mean = f"{np.mean(values[:length]):.3f}"[1:] if len(values) >= length > 0 else "-"
    return [*texts, *["-"] * (length - len(texts)), mean]


def _long_runs(source: Source, method: str) -> dict[int, Record]:
    """The longest run of that setting, for each beta where the method has one (else 0)."""
    longest: dict[int, Record] = {}
    for record in sorted(source.store.records(), key=lambda r: r.done):
        c = record.config
        wanted = (c.run.method, *record.column, *record.seeds.values())
        if wanted == (method, "cifar-10", 0.5, 1, 1, 1) and trains_as_published(c):
            longest[record.beta or 0] = record
    return longest


def inventory(source: Source) -> MarkupTable:
    """What was run, with what, and how far."""
    groups: dict[tuple[str, str, int, int], list[Record]] = {}
    everything = source.store.records()
    for record in everything:
        c = record.config
        key = (column_label(record.column), c.model.name, c.run.clients, c.run.rounds)
        groups.setdefault(key, []).append(record)
    rows: list[list[Item]] = []
    for (column, model, clients, rounds), records in sorted(groups.items()):
        unfinished = [f"{r.config.run.method} ({r.done})" for r in records if not r.complete]
        rows.append(
            [
                f"{column}, {model}, {clients} clients, T = {rounds}",
                str(sum(r.complete for r in records)),
                ", ".join(unfinished) or "-",
                ", ".join(sorted({r.config.run.method for r in records})),
                ", ".join(str(s) for s in sorted({r.config.run.seed for r in records})),
                f"{sum(_seconds(r) for r in records) / 60:.0f} min",
            ]
        )
    for line in source.store.lines("perturbation"):
        label, seed = f"{describe_line(line)}: check-perturbation", str(line["config"]["run"]["seed"])
        rows.append([label, f"{line['clients']} clients", "-", "-", seed, "-"])
    header = ["setting", "finished runs", "unfinished (rounds so far)", "methods", "seeds", "wall clock"]
    versions, cpus = (
        ", ".join(sorted({str(r.line["environment"][name]) for r in everything})) for name in ("torch", "cpu")
    )
    total = sum(_seconds(r) for r in everything) / 3600
    notes = [f"torch {versions}; {cpus}, shared with other work; {total:.1f} h in all."]
    return MarkupTable("Runs in the store.", header, rows, notes)


def _seconds(record: Record) -> float:
    return float(record.line["seconds"].get("round", 0.0))


def noise_table(source: Source) -> MarkupTable:
    """How far runs of one setting lie apart that differ in one seed alone, or in all of them."""
    everything, wanted = source.store.records(), source.request.pick_datasets()
    rows: list[list[Item]] = []
    for records in by_setting(r for r in everything if r.complete and r.config.data.dataset in wanted):
        if not any(replicates(record, everything) for record in records):
            continue
        pairs: dict[str, list[float]] = {}
        for a, b in combinations(records, 2):
            apart = [name for name in SEED_NAMES if a.seeds[name] != b.seeds[name]]
            if len(apart) in (1, len(SEED_NAMES)):
                what = SEED_NAMES[apart[0]] if len(apart) == 1 else "all three"
                gap = a.mean("trained", slice(-LAST, None)) - b.mean("trained", slice(-LAST, None))
                pairs.setdefault(what, []).append(gap)
        c = records[0].config
        label = f"{column_label(records[0].column)}, {c.run.method}, T = {c.run.rounds}"
        for what, gaps in pairs.items():
            deviation = float(np.sqrt(np.mean(np.square(gaps)) / 2))
            rows.append([label, what, f"{deviation:.2f}", f"{max(map(abs, gaps)):.2f}", str(len(gaps))])
    header = ["", "another", "standard deviation", "largest difference", "pairs"]
    notes = [
        "Mean accuracy over clients and the last ten rounds, after training, percentage points. Standard "
        "deviation of one run: root mean square of the differences between two, over √2. Its square is "
        "roughly what that seed adds to the variance: of so few pairs, parts need not add up to the whole."
    ]
    nothing: list[list[Item]] = [["no replicate in the store yet", *["-"] * 4]]
    return MarkupTable("Size of noise.", header, sorted(rows, key=str) or nothing, notes)
