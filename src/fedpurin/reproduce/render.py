"""From the name of a table or figure to its content, read from the store alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpurin.reproduce.accuracy import Source, accuracy_table, column_label, options_table, paired_table
from fedpurin.reproduce.cells import config_of
from fedpurin.reproduce.claims import claims_table
from fedpurin.reproduce.communication import WITH_BETA, communication_table, kept_table
from fedpurin.reproduce.perturbation_report import cost_table, decile_table, floor_table
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.scales import trains_as_published
from fedpurin.reproduce.store import Record
from fedpurin.reproduce.tables import Item, Table
from fedpurin.reproduce.values import values_table

ONLY_SHOWN = {
    "claims": "each claim of the text: holds, fails, undecided",
    "first-rounds": "our first rounds beside those of the authors' program",
    "inventory": "every run in the store",
    "table-floor": "what float16 and the floor do to the score",
    "table-cost": "what scoring costs beside training",
    "table-kept": "layers that upload less than tau",
}


def tables(name: str, source: Source) -> list[Table]:
    """The tables of a recipe; figures come with the table of their numbers."""
    recipe = RECIPES.get(name)
    if name == "claims":
        return [claims_table(source)]
    if name == "first-rounds":
        return [first_rounds(source)]
    if name == "table-kept":
        return [kept_table(source, RECIPES["table-communication"])]
    if name == "inventory":
        return [inventory(source)]
    if name in {"check-perturbation", "table-floor", "table-cost"}:
        lines = perturbation_lines(source)
        if name == "table-floor":
            return [floor_table(lines)]
        return [cost_table(lines)] if name == "table-cost" else [decile_table(line) for line in lines]
    assert recipe is not None
    match name:
        case "table-communication" | "figure-bytes":
            return [communication_table(source, recipe)]
        case "table-paired":
            return [paired_table(source, recipe)]
        case "table-values":
            return [values_table(source, recipe)]
        case "table-controls" | "table-switches":
            return [options_table(source, recipe, recipe.rows[0].id)]
        case "figure-coverage":
            return []
    kind = {"table-terms": "terms", "figure-bn": "", "figure-tau": ""}.get(name, "accuracy")
    return [accuracy_table(source, recipe, kind)]


def figures(name: str, source: Source, out: Path) -> list[Path]:
    from fedpurin.reproduce import figures as draw
    from fedpurin.reproduce.coverage import coverage_figures
    from fedpurin.reproduce.perturbation_report import decile_figure
    from fedpurin.reproduce.traffic_figure import traffic_figure

    if name == "check-perturbation":
        return [file for line in perturbation_lines(source) for file in decile_figure(line, out)]
    if name == "figure-bars":
        return draw.bars(source, RECIPES[name], out)
    if name in {"figure-bn", "figure-tau", "figure-rounds"}:
        return draw.curves(source, RECIPES[name], out)
    if name == "figure-bytes":
        return traffic_figure(source, RECIPES[name], out)
    if name == "figure-coverage":
        files = []
        for line in coverage_lines(source):
            c = config_of(line["config"])
            files += coverage_figures(
                line, out, f"coverage-{c.data.dataset}-a{c.data.alpha:g}-{c.method.score}"
            )
        return files
    return []


def coverage_lines(source: Source) -> list[dict]:  # type: ignore[type-arg]
    """Those of the data sets of the request; of two with the same name the longer one comes last."""
    wanted = source.request.pick_datasets(None)
    lines = [x for x in source.store.lines("coverage") if x["config"]["data"]["dataset"] in wanted]
    return sorted(lines, key=lambda x: x["rounds"])


def perturbation_lines(source: Source) -> list[dict]:  # type: ignore[type-arg]
    wanted = source.request.datasets
    lines = [
        x
        for x in source.store.lines("perturbation")
        if not wanted or x["config"]["data"]["dataset"] in wanted
    ]
    return sorted(lines, key=lambda x: (x["config"]["data"]["dataset"], x["config"]["run"]["rounds"]))


def first_rounds(source: Source) -> Table:
    """CIFAR-10, alpha 0.5, seed 1: the authors' curve beside ours, round by round."""
    rows: list[list[Item]] = []
    longest = max((len(source.paper.first_rounds(m)) for m in ("fedpurin", "fedavg")), default=0)
    for method, label in (("fedpurin", "FedPURIN"), ("fedavg", "FedAvg")):
        rows.append([f"{label}, authors", *_padded(source.paper.first_rounds(method), longest)])
        for beta, record in sorted(_long_runs(source, method).items(), reverse=True):
            ours = f"{label}, ours" + (f", β = {beta}" if beta else "")
            rows.append([ours, *_padded(record.curve().tolist(), longest)])
    header = ["as uploaded, round", *(str(t) for t in range(1, longest + 1))]
    notes = [
        "CIFAR-10, α=0.5, seed 1, mean accuracy over the 20 clients; same split, another order of samples."
    ]
    return Table("The first rounds.", header, rows, notes)


def _padded(values: list[float], length: int) -> list[Item]:
    texts = [f".{round(1000 * v):03d}" for v in values[:length]]
    return [*texts, *["-"] * (length - len(texts))]


def _long_runs(source: Source, method: str) -> dict[int, Record]:
    """The longest run of that setting, for each beta where the method has one (else 0)."""
    found: dict[int, Record] = {}
    for record in sorted(source.store.records(), key=lambda r: r.done):
        c = record.config
        if trains_as_published(c) and (c.run.method, c.data.dataset, c.data.alpha, c.run.seed) == (
            method, "cifar-10", 0.5, 1,
        ):  # fmt: skip
            found[c.method.beta if method in WITH_BETA else 0] = record
    return found


def inventory(source: Source) -> Table:
    """What was run, with what, and how far."""
    groups: dict[tuple[str, str, int, int], list[Record]] = {}
    for record in source.store.records():
        c = record.config
        key = (column_label((c.data.dataset, c.data.alpha)), c.model.name, c.run.clients, c.run.rounds)
        groups.setdefault(key, []).append(record)
    rows: list[list[Item]] = []
    for (column, model, clients, rounds), records in sorted(groups.items()):
        seconds = sum(r.line["seconds"].get("round", 0.0) for r in records)
        unfinished = [f"{r.config.run.method} ({r.done})" for r in records if not r.complete]
        methods = sorted({r.config.run.method for r in records})
        rows.append(
            [
                f"{column}, {model}, {clients} clients, T = {rounds}",
                str(sum(r.complete for r in records)),
                ", ".join(unfinished) or "-",
                ", ".join(methods),
                ", ".join(str(s) for s in sorted({r.config.run.seed for r in records})),
                f"{seconds / 60:.0f} min",
            ]
        )
    lines = list(source.store.lines("perturbation"))
    for line in lines:
        c = config_of(line["config"])
        column = column_label((c.data.dataset, c.data.alpha))
        label = f"{column}, {c.model.name}, check-perturbation, {c.run.rounds} rounds alone"
        rows.append([label, str(line["clients"]) + " clients", "-", "-", str(c.run.seed), "-"])
    header = ["setting", "finished runs", "unfinished (rounds so far)", "methods", "seeds", "wall clock"]
    versions = sorted({str(r.line["environment"]["torch"]) for r in source.store.records()})
    cpus = sorted({str(r.line["environment"]["cpu"]) for r in source.store.records()})
    total = np.sum([r.line["seconds"].get("round", 0.0) for r in source.store.records()]) / 3600
    notes = [f"torch {', '.join(versions)}; {', '.join(cpus)}, shared with other work; {total:.1f} h in all."]
    return Table("Runs in the store.", header, rows, notes)
