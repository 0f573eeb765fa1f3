"""Sentences about FedPURIN's parts: other scores in place of the gradient's, and no groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpurin.reproduce.accuracy_tables import MOMENTS, mean_mib
from fedpurin.reproduce.findings import CIFAR, sixty_rounds
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.recipes import RECIPES, Column
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source, seed_numbers
from fedpurin.reproduce.stats import LAST, Difference, paired, partners

SCORES = RECIPES["table-controls"]
SETTINGS: dict[str, tuple[Request, Column]] = {
    "Fashion-MNIST mini, α = 0.5": (Request(scale="mini"), ("fashion-mnist-mini", 0.5)),
    "CIFAR-10, α = 0.1, five clients, T = 60": (
        Request(scale="paper", seeds=(1,), rounds=60, changes={"run": {"clients": 5}}),
        ("cifar-10", 0.1),
    ),
    "CIFAR-10, α = 0.5, 20 clients, T = 60": (Request(scale="paper", rounds=60), CIFAR),
}


def finished(
    source: Source, request: Request, column: Column, recipe: str = "table-controls"
) -> dict[str, list[Record]]:
    """The rows of a recipe that were run to the end, by id."""
    here, rows = replace(source, request=request), RECIPES[recipe].rows
    found = {row.id: here.records(RECIPES[recipe], row, column) for row in rows}
    done = {name: [r for r in records if r.complete] for name, records in found.items()}
    return {name: records for name, records in done.items() if records}


def _others(source: Source, where: str, say: Callable[[str, list[Record], list[Record]], str]) -> str:
    """What `say` says of each other score beside the gradient's; "" where there is none."""
    runs = finished(source, *SETTINGS[where])
    base = runs.pop("gradient", [])
    return "; ".join(said for name, records in runs.items() if base and (said := say(name, records, base)))


def _verdict(gap: Difference | None) -> str:
    return f"{gap.text()} ({gap.verdict_here})" if gap else "other clients"


def score_findings(source: Source) -> Paragraphs:
    """Magnitude, random and delta beside the gradient score: verdicts, downloads, and whether the order as
    uploaded turns around at beta."""

    def say(name: str, records: list[Record], base: list[Record]) -> str:
        gaps = [(words, paired(records, base, moment)) for moment, words in MOMENTS.items()]
        told = ", ".join(f"{gap.verdict_here} {words}" for words, gap in gaps if gap)
        mine, theirs = ([pair[i] for pair in partners(records, base)] for i in (0, 1))
        if not mine:
            return ""
        down = 100 * mean_mib(mine, "down") / mean_mib(theirs, "down")
        return f"{name} {told}, with {down:.0f} % of its download{_halves(records, base)}"

    lines = []
    for where in SETTINGS:
        said = _others(source, where, say)
        lines.append(f"- {where}, {_seeds(source, where)}: {said}." if said else f"- {where}: not run yet.")
    return Paragraphs(lines)


def _seeds(source: Source, where: str) -> str:
    runs = finished(source, *SETTINGS[where])
    return seed_numbers(r.config.run.seed for name, rs in runs.items() if name != "gradient" for r in rs)


def _halves(records: list[Record], base: list[Record]) -> str:
    """As uploaded, until beta and after it, over the seeds that both have."""
    pairs, beta = partners(records, base), base[0].beta or base[0].done
    halves = (slice(0, beta), slice(beta, None))
    gaps = [[a.mean("upload", half) - b.mean("upload", half) for a, b in pairs] for half in halves]
    before, after = (sum(values) / len(values) for values in gaps)
    return f" (as uploaded {before:+.1f} points over the rounds until β, {after:+.1f} after it)"


def score_verdicts(source: Source) -> str:
    """Plain magnitude in place of the paper's score, wherever it was run."""

    def say(name: str, records: list[Record], base: list[Record]) -> str:
        if name != "magnitude":
            return ""
        gaps = [paired(records, base, moment) for moment in ("upload", "trained")]
        sent, trained = (gap.verdict_here if gap else "" for gap in gaps)
        if sent == trained:
            return sent and f"{sent}, as uploaded and after training"
        return f"{sent} as uploaded, {trained} after training"

    told = {where: _others(source, where, say) for where in SETTINGS}
    said = "; ".join(f"{text} ({where}, {_seeds(source, where)})" for where, text in told.items() if text)
    return f"Plain magnitude in the gradient score's place: {said}." if said else ""


def without_groups(source: Source) -> str:
    """What no groups cost FedPURIN and FedCAC, and how far above training alone FedPURIN then ends."""
    runs = finished(source, Request(scale="paper", rounds=60), CIFAR, "table-beta")
    said = []
    for label, none, base in (("FedPURIN", "none", "half"), ("FedCAC", "fedcac-none", "fedcac-half")):
        gap = paired(runs.get(none, []), runs.get(base, []), "trained")
        if gap is not None:
            said.append(f"{label} {_verdict(gap)}")
    if not said:
        return ""
    text = f"Without them (β = 1; last {LAST} of 60 rounds, after training): {'; '.join(said)}."
    alone = paired(runs.get("none", []), sixty_rounds(source).get("separate", []), "trained")
    if alone is None:
        return text
    return f"{text} FedPURIN without groups beside training alone: {_verdict(alone)}."
