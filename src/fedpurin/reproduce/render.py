"""From the name of a table or figure to its content, read from the store alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedpurin.errors import ConfigError
from fedpurin.reproduce import accuracy_tables as accuracy
from fedpurin.reproduce import (
    bundled,
    communication,
    findings,
    frontier,
    inventory,
    paper_figures,
    summary,
    worth,
)
from fedpurin.reproduce import findings_score as scores
from fedpurin.reproduce import perturbation_report as checks
from fedpurin.reproduce.claims_tables import claims_table, verdicts_table
from fedpurin.reproduce.coverage_figures import coverage_figures, coverage_pictures
from fedpurin.reproduce.findings_full import full_findings, longer
from fedpurin.reproduce.headlines import headlines
from fedpurin.reproduce.markup import MarkupTable, Paragraphs
from fedpurin.reproduce.recipes import RECIPES, Recipe
from fedpurin.reproduce.source import Source

Shown = MarkupTable | Paragraphs

OF_A_RECIPE: dict[str, Callable[[Source, Recipe], Shown]] = {
    "table-accuracy": accuracy.accuracy_table,
    "table-terms": accuracy.accuracy_table,
    "table-communication": communication.communication_table,
    "table-controls": accuracy.options_table,
    "table-switches": accuracy.options_table,
    "table-beta": accuracy.options_table,
    "table-worth": worth.worth_table,
    "table-values": accuracy.values_table,
    "table-paired": accuracy.paired_table,
    "table-windows": accuracy.windows_table,
    "figure-bars": accuracy.accuracy_table,
    "figure-rounds": accuracy.accuracy_table,
    "figure-bytes": communication.communication_table,
    "figure-bn": accuracy.accuracy_table,
    "figure-tau": accuracy.accuracy_table,
}
OF_THE_STORE: dict[str, Callable[[Source], Shown]] = {
    "claims": claims_table,
    "claims-verdicts": verdicts_table,
    "table-kept": communication.kept_table,
    "table-traffic": frontier.traffic_table,
    "table-bundled": bundled.bundled_table,
    "table-bundled-switches": bundled.switches_table,
    "table-bundled-rivals": bundled.rivals_table,
    "table-noise": inventory.noise_table,
    "table-half": checks.half_table,
    "table-floor": checks.floor_table,
    "table-cost": checks.cost_table,
    "check-norms": accuracy.norms_table,
    "first-rounds": inventory.first_rounds,
    "findings-curves": findings.curve_findings,
    "findings-traffic": findings.traffic_findings,
    "findings-headlines": headlines,
    "findings-score": scores.score_findings,
    "findings-summary": summary.summary,
    "findings-seeds": summary.by_seed,
    "findings-coverage": coverage_pictures,
    "findings-full": full_findings,
    "findings-longer": longer,
    "inventory": inventory.inventory,
}


def tables(name: str, source: Source) -> Sequence[Shown]:
    """The tables of a name; figures come with the table of their numbers, where they have one."""
    if name in OF_A_RECIPE:
        return [OF_A_RECIPE[name](source, RECIPES[name])]
    if name == "check-perturbation":
        return [checks.decile_table(line) for line in checks.lines(source)]
    if name in ("figure-traffic", "figure-worth", "figure-coverage"):
        return []
    if name not in OF_THE_STORE:
        raise ConfigError(f"{name} makes no table; name one of {', '.join([*OF_A_RECIPE, *OF_THE_STORE])}")
    return [OF_THE_STORE[name](source)]


def figures(name: str, source: Source, out: Path) -> list[Path]:
    match name:
        case "check-perturbation":
            return [file for line in checks.lines(source) for file in checks.decile_figure(line, out)]
        case "figure-bars":
            return paper_figures.bars(source, RECIPES[name], out)
        case "figure-bn" | "figure-tau" | "figure-rounds":
            return paper_figures.curves(source, RECIPES[name], out)
        case "figure-bytes":
            return communication.bytes_figure(source, RECIPES[name], out)
        case "figure-traffic":
            return frontier.traffic_picture(source, out)
        case "figure-worth":
            return worth.worth_picture(source, RECIPES[name], out)
        case "figure-coverage":
            return [file for line in source.lines("coverage") for file in coverage_figures(line, out)]
    return []
