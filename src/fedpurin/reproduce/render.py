"""From the name of a table or figure to its content, read from the store alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpurin.reproduce.accuracy_tables import (
    accuracy_table,
    options_table,
    paired_table,
    values_table,
    windows_table,
)
from fedpurin.reproduce.bundled import bundled_table
from fedpurin.reproduce.claims import claims_table
from fedpurin.reproduce.communication import communication_table, kept_table
from fedpurin.reproduce.findings import curve_findings, traffic_findings
from fedpurin.reproduce.frontier import traffic_table
from fedpurin.reproduce.inventory import first_rounds, inventory, noise_table
from fedpurin.reproduce.markup import MarkupTable, Paragraphs
from fedpurin.reproduce.norms import norms_table
from fedpurin.reproduce.perturbation_report import cost_table, decile_table, floor_table, half_table
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.source import Source

Lines = list[dict[str, Any]]
Shown = Sequence[MarkupTable | Paragraphs]


def _checks(source: Source) -> Lines:
    wanted = source.request.datasets
    lines = [
        x
        for x in source.store.lines("perturbation")
        if not wanted or x["config"]["data"]["dataset"] in wanted
    ]
    return sorted(lines, key=lambda x: (x["config"]["data"]["dataset"], x["config"]["run"]["rounds"]))


def _by_recipe(
    name: str, make: Callable[..., MarkupTable], *words: str
) -> Callable[[Source], list[MarkupTable]]:
    return lambda source: [make(source, RECIPES[name], *words)]


TABLES: dict[str, Callable[[Source], Shown]] = {
    "table-accuracy": _by_recipe("table-accuracy", accuracy_table, "accuracy"),
    "table-terms": _by_recipe("table-terms", accuracy_table, "terms"),
    "table-communication": _by_recipe("table-communication", communication_table),
    "table-controls": _by_recipe("table-controls", options_table),
    "table-switches": _by_recipe("table-switches", options_table),
    "table-beta": _by_recipe("table-beta", options_table),
    "table-values": _by_recipe("table-values", values_table),
    "table-paired": _by_recipe("table-paired", paired_table),
    "table-windows": _by_recipe("table-windows", windows_table),
    "table-kept": _by_recipe("table-communication", kept_table),
    "table-traffic": lambda source: [traffic_table(source)],
    "table-bundled": lambda source: [bundled_table(source)],
    "table-noise": lambda source: [noise_table(source)],
    "check-norms": lambda source: [norms_table(source)],
    "check-perturbation": lambda source: [decile_table(line) for line in _checks(source)],
    "table-half": lambda source: [half_table(_checks(source))],
    "table-floor": lambda source: [floor_table(_checks(source))],
    "table-cost": lambda source: [cost_table(_checks(source))],
    "claims": lambda source: [claims_table(source)],
    "first-rounds": lambda source: [first_rounds(source)],
    "findings-curves": lambda source: [curve_findings(source)],
    "findings-traffic": lambda source: [traffic_findings(source)],
    "inventory": lambda source: [inventory(source)],
    "figure-bars": _by_recipe("figure-bars", accuracy_table, "accuracy"),
    "figure-rounds": _by_recipe("figure-rounds", accuracy_table, "accuracy"),
    "figure-bytes": _by_recipe("figure-bytes", communication_table),
    "figure-bn": _by_recipe("figure-bn", accuracy_table, ""),
    "figure-tau": _by_recipe("figure-tau", accuracy_table, ""),
    "figure-traffic": lambda source: [],
    "figure-coverage": lambda source: [],
}


def tables(name: str, source: Source) -> Shown:
    """The tables of a name; figures come with the table of their numbers."""
    return TABLES[name](source)


def figures(name: str, source: Source, out: Path) -> list[Path]:
    from fedpurin.reproduce import paper_figures as draw
    from fedpurin.reproduce.bytes_figure import bytes_figure
    from fedpurin.reproduce.coverage_figures import coverage_figures
    from fedpurin.reproduce.frontier import traffic_picture
    from fedpurin.reproduce.perturbation_report import decile_figure

    match name:
        case "check-perturbation":
            return [file for line in _checks(source) for file in decile_figure(line, out)]
        case "figure-bars":
            return draw.bars(source, RECIPES[name], out)
        case "figure-bn" | "figure-tau" | "figure-rounds":
            return draw.curves(source, RECIPES[name], out)
        case "figure-bytes":
            return bytes_figure(source, RECIPES[name], out)
        case "figure-traffic":
            return traffic_picture(source, out)
        case "figure-coverage":
            return [file for line in source.lines("coverage") for file in coverage_figures(line, out)]
    return []
