"""The files of a finished search: recommended.toml and report.html."""

from __future__ import annotations

from pathlib import Path

from fedpurin.files import write_atomic
from fedpurin.report.page import Extra, write_report
from fedpurin.tuning.outcome import SearchOutcome

RECOMMENDED, PAGE = "recommended.toml", "report.html"


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
