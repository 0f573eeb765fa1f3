"""Each claim of the paper's text beside our figure: holds, fails, or undecided and for want of what.

A claim is decided only by what it needs: all of its columns at the paper's length, all three seeds. What is
there already is shown as a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedpurin.reproduce.claim import Claim, undecided
from fedpurin.reproduce.claims_masks import mask_claims
from fedpurin.reproduce.communication import saving
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.recipes import RECIPES, Column
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request, trains_as_published
from fedpurin.reproduce.source import Source, column_label, dataset_label, record_column
from fedpurin.reproduce.stats import Difference, paired

SMALL_CHANGE = 1.0  # percentage points: "changes little"
SCALE_WORDS = {"paper": "the paper's scale", "quick": "short runs", "mini": "mini scale"}


def all_claims(source: Source) -> list[Claim]:
    return [
        _saving(source, "at least", "resnet8", ("fashion-mnist", "cifar-10"), 0.5),
        _saving(source, "up to", "resnet10", ("cifar-100",), 170 / 300),
        _wins(source, "fedbn", 5),
        _wins(source, "fedcac", 8),
        _beats_separate(source),
        _more_with_alpha(source),
        _terms(source, "Exact gradients beat delta on the whole", "gradient", "delta", _better),
        _terms(source, "The quadratic term changes little", "gradient-hessian", "gradient", _little),
        _norm_gap(source),
        _rises_with_tau(source),
        *mask_claims(source),
    ]


def claims_table(source: Source) -> MarkupTable:
    rows: list[list[Item]] = [[c.text, c.conclusion, c.figure, c.scale] for c in all_claims(source)]
    notes = ["Undecided: the store lacks what the claim needs; what is there is shown as a hint."]
    return MarkupTable("Claims of the paper.", ["claim", "verdict", "here", "measured at"], rows, notes)


@dataclass(frozen=True)
class Grid:
    """The finished cells of some rows of a recipe at one scale, and how many of them are missing."""

    source: Source
    recipe: str
    rows: tuple[str, ...]
    datasets: tuple[str, ...] | None = None
    looked_up: dict[tuple[str, Column], list[Record]] = field(default_factory=dict)

    @property
    def columns(self) -> list[Column]:
        columns = RECIPES[self.recipe].columns(self.source.request)
        return [c for c in columns if self.datasets is None or c[0] in self.datasets]

    def records(self, row: str, column: Column) -> list[Record]:
        if (row, column) not in self.looked_up:
            recipe = RECIPES[self.recipe]
            records = self.source.records(recipe, recipe.row(row), column)
            self.looked_up[row, column] = [r for r in records if r.complete]
        return self.looked_up[row, column]

    def best(self, row: str, column: Column) -> float:
        """The paper's figure: mean over seeds of the best round."""
        return float(np.mean([r.best() for r in self.records(row, column)]))

    @property
    def needs(self) -> str:
        """ "" when everything is there."""
        seeds = len(RECIPES[self.recipe].seeds_of(self.source.request))
        wanted = seeds * len(self.rows) * len(self.columns)
        have = sum(len(self.records(row, column)) for row in self.rows for column in self.columns)
        return f"{wanted - have} of {wanted} runs of the paper's length" if have < wanted else ""


def grid(
    source: Source,
    recipe: str,
    rows: Sequence[str],
    datasets: tuple[str, ...] | None = None,
    scale: str = "paper",
) -> Grid:
    return Grid(replace(source, request=Request(scale=scale)), recipe, tuple(rows), datasets)


def hint(
    source: Source, recipe: str, rows: Sequence[str], text: Callable[[Grid, Column], str]
) -> tuple[str, str]:
    """What shorter runs say, column by column, from the first scale that has all of these rows."""
    for scale in ("paper", "quick", "mini"):
        here = grid(source, recipe, rows, scale=scale)
        full = [c for c in here.columns if all(here.records(row, c) for row in rows)]
        if full:
            return "; ".join(text(here, column) for column in full), SCALE_WORDS[scale]
    return "nothing measured yet", "-"


# Communication


def _saving(source: Source, words: str, model: str, datasets: tuple[str, ...], share: float) -> Claim:
    up, down = source.paper.saving(model)
    text = f"Uplink / downlink reduced by {words} {up} / {down} % ({model})"
    rows = ("fedpurin", "fedavg")
    for scale in ("paper", "quick"):
        here = grid(source, "table-communication", rows, datasets, scale)
        full = [c for c in here.columns if all(here.records(row, c) for row in rows)]
        saved = {c[0]: saving(here.records(rows[0], c), here.records(rows[1], c), share) for c in full}
        if not saved:
            continue
        figure = "; ".join(f"{dataset_label(name)}: {u:.1f} / {d:.1f} %" for name, (u, d) in saved.items())
        reached = all(u >= up - 0.05 and d >= down - 0.05 for u, d in saved.values())
        needs = grid(source, "table-communication", rows, datasets).needs
        return Claim.of(text, figure, reached, needs, SCALE_WORDS[scale])
    return undecided(text, grid(source, "table-communication", rows, datasets).needs)


# Accuracy


def _wins(source: Source, rival: str, claimed: int) -> Claim:
    full = grid(source, "table-accuracy", ("fedpurin", rival))
    text = f"FedPURIN above {RECIPES['table-accuracy'].row(rival).label} in {claimed} of 9 settings"
    if full.needs:
        return undecided(text, full.needs, *_longest(source, "fedpurin", rival))
    wins = sum(full.best("fedpurin", c) > full.best(rival, c) for c in full.columns)
    return Claim.of(text, f"{wins} of {len(full.columns)}", wins >= claimed, "", SCALE_WORDS["paper"])


def _longest(source: Source, own: str, other: str) -> tuple[str, str]:
    """The paired difference in the longest run of the paper's setting, and at mini scale."""
    plain = [r for r in source.store.records() if trains_as_published(r.config)]
    ours, theirs = ([r for r in plain if r.config.run.method == name] for name in (own, other))
    gaps = []
    for length in {r.config.run.rounds for r in ours}:
        for column in {record_column(r) for r in ours}:
            pair = [
                [r for r in rs if (r.config.run.rounds, record_column(r)) == (length, column)]
                for rs in (ours, theirs)
            ]
            gap = paired(*_of_one_setting(*pair))
            if gap is not None:
                seeds = f"{gap.seeds} seed{'s' if gap.seeds > 1 else ''}"
                text = f"{column_label(column)}, round {gap.rounds}, {seeds}: {gap.text()}, {gap.verdict}"
                gaps.append((gap.rounds, gap.seeds, text))
    recipe, mini = RECIPES["table-accuracy"], replace(source, request=Request(scale="mini"))
    pair = [mini.records(recipe, recipe.row(name), ("fashion-mnist-mini", 0.5)) for name in (own, other)]
    small = paired(pair[0], pair[1])
    parts = [max(gaps)[2]] if gaps else []
    if small is not None:
        parts.append(f"mini: {small.text()}, {small.verdict}")
    scales = ["fewer rounds"] * bool(gaps) + ["mini scale"] * (small is not None)
    return "; ".join(parts) or "nothing measured yet", ", ".join(scales) or "-"


def _of_one_setting(ours: list[Record], theirs: list[Record]) -> tuple[list[Record], list[Record]]:
    """Of several betas the one nearest to the paper's share of the rounds."""

    def nearest(records: list[Record]) -> list[Record]:
        betas = {r.beta for r in records if r.beta is not None}
        if not betas:
            return records
        best = min(betas, key=lambda beta: abs(beta / records[0].config.run.rounds - 0.5))
        return [r for r in records if r.beta == best]

    return nearest(ours), nearest(theirs)


def _beats_separate(source: Source) -> Claim:
    rows = [row.id for row in RECIPES["table-accuracy"].rows]
    full = grid(source, "table-accuracy", rows)
    text = "Every method beats training alone"

    def beaten(here: Grid, columns: Sequence[Column]) -> tuple[int, int]:
        pairs = [(row, c) for row in rows[1:] for c in columns if here.records(row, c)]
        return sum(here.best(row, c) > here.best("separate", c) for row, c in pairs), len(pairs)

    if not full.needs:
        above, pairs = beaten(full, full.columns)
        return Claim.of(text, f"{above} of {pairs}", above == pairs, "", SCALE_WORDS["paper"])
    said, scale = _shorter_grid(source, lambda here, c: "{} of {} methods".format(*beaten(here, [c])))
    return undecided(text, full.needs, said, scale)


def _shorter_grid(source: Source, text: Callable[[Grid, Column], str]) -> tuple[str, str]:
    """Runs of the paper's settings with T = 60, else the mini scale: every column that has Separate."""
    for request in (Request(scale="paper", rounds=60, seeds=(1,)), Request(scale="mini")):
        here = Grid(replace(source, request=request), "table-accuracy", ("separate",))
        columns = [c for c in here.columns if here.records("separate", c)]
        if columns:
            words = "T = 60, seed 1" if request.rounds else SCALE_WORDS["mini"]
            return "; ".join(f"{column_label(c)}: {text(here, c)}" for c in columns), words
    return "nothing measured yet", "-"


def _more_with_alpha(source: Source) -> Claim:
    rows = [row.id for row in RECIPES["table-accuracy"].rows]
    full = grid(source, "table-accuracy", rows)
    text = "The gain over training alone grows with α"
    printed = _rising(lambda row, c: source.paper.number("accuracy", row, *c) or 0.0, rows[1:], full.columns)
    said = f"the paper's own table: in {printed[0]} of {printed[1]} (method, data set)"
    if full.needs:
        return undecided(text, full.needs, said, "-")
    rising, pairs = _rising(full.best, rows[1:], full.columns)
    return Claim.of(text, f"{rising} of {pairs}; {said}", rising == pairs, "", SCALE_WORDS["paper"])


def _rising(
    value: Callable[[str, Column], float], rows: Sequence[str], columns: Sequence[Column]
) -> tuple[int, int]:
    """In how many (method, data set) the gain over Separate rises from each alpha to the next."""
    pairs = [(row, name) for row in rows for name in dict.fromkeys(d for d, _ in columns)]
    gains = [[value(row, c) - value("separate", c) for c in columns if c[0] == name] for row, name in pairs]
    return sum(gain == sorted(gain) for gain in gains), len(pairs)


def _better(gap: Difference) -> bool | None:
    return {"better": True, "worse": False}.get(gap.verdict)


def _little(gap: Difference) -> bool | None:
    if max(abs(gap.low), abs(gap.high)) < SMALL_CHANGE:
        return True
    return False if gap.low > SMALL_CHANGE or gap.high < -SMALL_CHANGE else None


def _terms(
    source: Source, text: str, first: str, second: str, judge: Callable[[Difference], bool | None]
) -> Claim:
    """Two rows of table-terms over all columns and seeds at once."""
    full = grid(source, "table-terms", (first, second))

    def said(here: Grid, column: Column) -> str:
        gap = paired(here.records(first, column), here.records(second, column))
        return f"{column_label(column)}: {gap.text()}, {gap.verdict}" if gap else ""

    if full.needs:
        return undecided(text, full.needs, *hint(source, "table-terms", (first, second), said))
    ours, theirs = ([r for c in full.columns for r in full.records(row, c)] for row in (first, second))
    gap = paired(ours, theirs)
    verdict = None if gap is None else judge(gap)
    figure = "-" if gap is None else f"nine settings together: {gap.text()} points, {gap.verdict}"
    if verdict is None:
        return undecided(text, "a smaller interval", figure, SCALE_WORDS["paper"])
    return Claim.of(text, figure, verdict, "", SCALE_WORDS["paper"])


def _norm_gap(source: Source) -> Claim:
    rows = ("no", "whole", "selected")
    full = grid(source, "figure-bn", rows)
    text = "Batch norm is better kept at home, by a gap that grows with α"

    def gaps(here: Grid, column: Column) -> str:
        values = [here.best("no", column) - here.best(row, column) for row in rows[1:]]
        return f"{column_label(column)}: {values[0]:+.2f} (sent whole), {values[1]:+.2f} (selected)"

    if full.needs:
        return undecided(text, full.needs, *hint(source, "figure-bn", rows, gaps))
    verdicts = []
    for row in rows[1:]:
        values = [full.best("no", c) - full.best(row, c) for c in full.columns]
        verdicts.append(values[0] > 0 and values == sorted(values))
    figure = "; ".join(gaps(full, c) for c in full.columns)
    return Claim.of(text, figure, any(verdicts), "", SCALE_WORDS["paper"])


def _rises_with_tau(source: Source) -> Claim:
    rows = [row.id for row in RECIPES["figure-tau"].rows]
    full = grid(source, "figure-tau", rows)
    text = "Accuracy rises with τ"

    def said(here: Grid, column: Column) -> str:
        return f"{column_label(column)}: " + ", ".join(f"{here.best(row, column):.1f}" for row in rows)

    if full.needs:
        figure, scale = hint(source, "figure-tau", rows, said)
        return undecided(text, full.needs, f"τ = 0.2 to 0.6: {figure}", scale)
    curves = [[full.best(row, c) for row in rows] for c in full.columns]
    figure = "; ".join(said(full, c) for c in full.columns)
    return Claim.of(text, figure, all(c == sorted(c) for c in curves), "", SCALE_WORDS["paper"])
