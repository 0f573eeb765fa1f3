"""What a search found: the Pareto front, the configuration to take, what was not tried; and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.files import write_atomic
from fedpurin.report.page import Extra, write_report
from fedpurin.runs.directory import stored_config
from fedpurin.runs.traffic import fronts
from fedpurin.tuning.candidates import never_varied
from fedpurin.tuning.trial import Standing, Trial

RECOMMENDED, PAGE = "recommended.toml", "report.html"


@dataclass(frozen=True)
class RankedTrial:
    trial: Trial
    standing: Standing
    rung: int  # how far it came
    on_front: bool = False
    recommended: bool = False


@dataclass(frozen=True)
class SearchOutcome:
    rows: list[RankedTrial]  # all that were tried, finalists first, each part by accuracy
    rungs: int
    budget_mib: float | None
    config: Config  # the recommended one
    why: str
    not_tried: list[str]

    @property
    def recommended(self) -> RankedTrial:
        return next(row for row in self.rows if row.recommended)

    @property
    def finalists(self) -> list[RankedTrial]:
        return [row for row in self.rows if row.rung == self.rungs]


def ranked(trials: Sequence[Trial], budget: float | None) -> list[Trial]:
    """Best first: those within the budget; front by front; the more accurate before the others."""
    standings = [Standing.of(trial, budget) for trial in trials]
    levels = fronts([(s.validation, s.mib) for s in standings])
    order = sorted(
        range(len(trials)),
        key=lambda i: (not standings[i].fits, levels[i], -standings[i].validation, standings[i].mib),
    )
    return [trials[i] for i in order]


def make_outcome(
    trials: Sequence[Trial],
    reached: Mapping[Trial, int],
    finalists: Sequence[Trial],
    budget: float | None,
    left_out: Sequence[str],
) -> SearchOutcome:
    standings = {trial: Standing.of(trial, budget) for trial in trials if trial in reached}
    last = [standings[trial] for trial in finalists]
    chosen, why = choose(last, budget)
    front = dict(zip(finalists, fronts([(s.validation, s.mib) for s in last]), strict=True))
    rows = [
        RankedTrial(trial, standing, reached[trial], front.get(trial) == 0, trial is finalists[chosen])
        for trial, standing in standings.items()
    ]
    rows.sort(key=lambda row: (-row.rung, -row.standing.validation, row.standing.mib))
    never = [t.label for t in trials if not t.started]
    no_time = [f"there was no time for {'; '.join(never)}"] if never else []
    not_tried = [*no_time, *left_out, *never_varied([trial.candidate.config for trial in standings])]
    rungs = max(reached.values())
    return SearchOutcome(rows, rungs, budget, stored_config(finalists[chosen].path), why, not_tried)


def choose(standings: Sequence[Standing], budget: float | None) -> tuple[int, str]:
    """Which finalist to take, and why.

    With a budget of MiB the most accurate that fits. Without one the cheapest of those that cannot be told
    apart from the most accurate: within one standard error of it.
    """
    fitting = [i for i, s in enumerate(standings) if s.fits]
    if not fitting:
        least = min(s.mib for s in standings)
        raise RunError(
            f"no finalist fits the budget: the cheapest sends {least:.3g} MiB per client in "
            f"two rounds; allow more than {budget:g} MiB"
        )
    best = max(fitting, key=lambda i: (standings[i].validation, -standings[i].mib))
    if budget is not None:
        why = f"the highest validation accuracy of the finalists that stay within {budget:g} MiB per client"
        return best, why
    top = standings[best]
    equal = [i for i in fitting if standings[i].validation >= top.validation - top.error]
    cheapest = min(equal, key=lambda i: (standings[i].mib, -standings[i].validation))
    if cheapest == best:
        return best, "the highest validation accuracy; none that is as good within its error is cheaper"
    return cheapest, (
        f"the cheapest of the finalists within one standard error ({100 * top.error:.1f} points) of the "
        f"highest validation accuracy ({100 * top.validation:.1f} %)"
    )


def write_recommended(outcome: SearchOutcome, folder: Path) -> Path:
    """A configuration that `fedpurin run` takes as it is, with what it promises in comments."""
    write_atomic(folder / RECOMMENDED, recommended_toml(outcome))
    return folder / RECOMMENDED


def recommended_toml(outcome: SearchOutcome) -> str:
    s = outcome.recommended.standing
    asked = outcome.recommended.trial.planned
    lines = [
        f"Recommended by fedpurin tune: {outcome.why}.",
        f"{outcome.recommended.trial.label}",
        f"validation {100 * s.validation:.1f} %, {s.mib:.4g} MiB per client in {s.rounds} rounds, both ways",
    ]
    if s.rounds < asked:
        lines.append(f"{s.rounds} of the {asked} rounds asked for: so far the budget or the time reached")
    lines.append(
        f"data.validation holds out {outcome.config.data.validation:g} of each client's training samples, "
        "as in the search"
    )
    return "".join(f"# {line}\n" for line in lines) + outcome.config.to_toml()


def write_page(outcome: SearchOutcome, folder: Path) -> Path:
    """The report of the finalists, with the choice, who left before, and what was not tried.

    Runs that stopped early are not drawn beside whole ones: their accuracy is that of a beginner.
    """
    shown = outcome.finalists
    early = [
        f"{row.trial.label}: validation {100 * row.standing.validation:.1f} % after {row.standing.rounds} "
        f"rounds, about {row.standing.mib:.3g} MiB for {row.standing.planned}"
        + ("" if row.standing.fits else ": over the budget")
        for row in outcome.rows
        if row not in shown
    ]
    s = outcome.recommended.standing
    promise = [
        f"{outcome.recommended.trial.label}: {outcome.why}.",
        f"Validation {100 * s.validation:.1f} %, {s.mib:.3g} MiB per client in {s.rounds} rounds. On the "
        f"test samples, which decided nothing, {100 * s.test:.1f} %.",
    ]
    extras = [
        Extra("Recommended configuration", promise, recommended_toml(outcome), above=True),
        Extra("Left before the last rung", early),
        Extra("Not tried", outcome.not_tried),
    ]
    runs = [row.trial.path for row in shown]
    title = "A search for method and settings"
    labels = {row.trial.path: row.trial.label for row in shown}
    return write_report(runs, folder / PAGE, title, [extra for extra in extras if extra.lines], labels)
