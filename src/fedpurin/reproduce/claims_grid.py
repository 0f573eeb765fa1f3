"""The finished cells that a claim about accuracy or bytes is judged by, and what is there of them so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedpurin.reproduce.claim import NOTHING
from fedpurin.reproduce.recipes import RECIPES, Column, Recipe
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source, column_label, seed_numbers

PAPER, MINI = Request(scale="paper"), Request(scale="mini")
SIXTY = Request(scale="paper", rounds=60)
HINTS = {
    "the paper's length": PAPER,
    "T = 60": SIXTY,
    "short runs": Request(scale="quick"),
    "mini scale": MINI,
}


@dataclass(frozen=True)
class Grid:
    """The finished cells of some rows of a recipe at one request, and how many of them are missing."""

    source: Source
    recipe: Recipe
    rows: tuple[str, ...]
    looked_up: dict[tuple[str, Column], list[Record]] = field(default_factory=dict)

    @property
    def columns(self) -> list[Column]:
        return self.recipe.columns(self.source.request)

    @property
    def full(self) -> list[Column]:
        """Those with something in each of the rows."""
        return [c for c in self.columns if all(self.records(row, c) for row in self.rows)]

    def records(self, row: str, column: Column) -> list[Record]:
        if (row, column) not in self.looked_up:
            records = self.source.records(self.recipe, self.recipe.row(row), column)
            self.looked_up[row, column] = [r for r in records if r.complete]
        return self.looked_up[row, column]

    def length(self, column: Column) -> int:
        """Rounds of its runs."""
        return self.recipe.config(self.source.request, self.recipe.rows[0], column, 1).run.rounds

    def best(self, row: str, column: Column) -> float:
        """The paper's figure: mean over seeds of the best round."""
        return float(np.mean([r.best() for r in self.records(row, column)]))

    def shared(self, *rows: str) -> Grid:
        """The same over the seeds that all of these rows (none named: all) have: others are other clients."""
        looked_up = {}
        for column in self.columns:
            found = [self.records(row, column) for row in rows or self.rows]
            seeds = [{record.config.run.seed for record in records} for records in found]
            both = set.intersection(*seeds)
            for row, records in zip(rows or self.rows, found, strict=True):
                looked_up[row, column] = [r for r in records if r.config.run.seed in both]
        return replace(self, looked_up=looked_up)

    @property
    def needs(self) -> str:
        """ "" when everything is there."""
        seeds = len(self.recipe.seeds_of(self.source.request))
        wanted = seeds * len(self.rows) * len(self.columns)
        have = sum(len(self.records(row, column)) for row in self.rows for column in self.columns)
        return f"{wanted - have} of {wanted} runs of the paper's length" if have < wanted else ""

    def say(self, text: Callable[[Grid, Column], str]) -> str:
        """Column by column, of those that are full."""
        return "; ".join(f"{column_label(c)}: {text(self, c)}" for c in self.full)


def grid(source: Source, recipe: str, rows: Sequence[str], request: Request = PAPER) -> Grid:
    return Grid(replace(source, request=request), RECIPES[recipe], tuple(rows))


def hint(paper: Grid, text: Callable[[Grid, Column], str]) -> tuple[str, str]:
    """What is there already, from the first scale that has all of these rows; and that scale."""
    for words, request in HINTS.items():
        here = grid(paper.source, paper.recipe.name, paper.rows, request).shared()
        if here.full:
            seeds = seed_numbers(r.config.run.seed for c in here.full for r in here.records(here.rows[0], c))
            return here.say(text), f"{words}, {seeds}"
    return NOTHING, "-"
