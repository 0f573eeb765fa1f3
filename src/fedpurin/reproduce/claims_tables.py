"""The claims as tables: verdicts for a first page, and all that is there of each."""

from __future__ import annotations

from collections import Counter

from fedpurin.reproduce.claims import all_claims
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.source import Source


def verdicts_table(source: Source) -> MarkupTable:
    """A line each."""
    rows: list[list[Item]] = []
    for claim in all_claims(source):
        said = claim.brief or claim.figure
        rows.append([claim.text, claim.verdict, said if claim.needs else f"{said}; {claim.scale}"])
    return MarkupTable("Verdicts.", ["claim", "verdict", "here so far"], rows, [])


def verdict_counts(source: Source) -> str:
    verdicts = Counter(claim.verdict.strip("*") for claim in all_claims(source))
    words = {
        "holds": ("holds", "hold"),
        "fails": ("fails", "fail"),
        "undecided": ("is undecided", "are undecided"),
    }
    said = [f"{verdicts[name]} {words[name][verdicts[name] != 1]}" for name in words]
    return f"{verdicts.total()} claims: {', '.join(said)}"


def claims_table(source: Source) -> MarkupTable:
    rows: list[list[Item]] = [[c.text, c.conclusion, c.figure, c.scale] for c in all_claims(source)]
    notes = [
        f"{verdict_counts(source)}: the store lacks what they need, and what is there "
        "is a hint. Differences are in percentage points as uploaded, with intervals of 95 %. A verdict "
        "about masks or about cost speaks for the setting in its last column."
    ]
    header = ["claim", "verdict", "here so far", "measured at"]
    return MarkupTable("Claims of the paper.", header, rows, notes)
