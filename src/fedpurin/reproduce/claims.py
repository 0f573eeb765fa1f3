"""Each claim of the paper's text beside our figure: holds, fails, or undecided and for want of what.

A claim is decided only by what it needs: all of its columns at the paper's length, all three seeds. What is
there already is shown as a hint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpurin.reproduce.claim import NOTHING, Claim
from fedpurin.reproduce.claims_grid import MINI, PAPER, SIXTY, Grid, grid, hint
from fedpurin.reproduce.claims_masks import mask_claims
from fedpurin.reproduce.communication import saved_of_used, saving
from fedpurin.reproduce.recipes import PAPER_METHODS, RECIPES, Column
from fedpurin.reproduce.result_store import Record, finished_first
from fedpurin.reproduce.scales import PAPER_SETS, Request, trains_as_published
from fedpurin.reproduce.source import Source, column_label, dataset_label
from fedpurin.reproduce.stats import Difference, paired

SMALL_CHANGE = 1.0  # percentage points: "changes little"


def all_claims(source: Source) -> list[Claim]:
    """Those that are decided first."""
    claims = [
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
    return sorted(claims, key=lambda claim: bool(claim.needs))


def decided(text: str, figure: str, holds: bool) -> Claim:
    return Claim(text, "", figure, "the paper's scale", holds)


# Communication


def _saving(source: Source, words: str, model: str, datasets: tuple[str, ...], share: float) -> Claim:
    """Of each data set the runs of the paper's length, else the short ones; FedAvg's bytes never change."""
    up, down = source.paper.table["saving"][model]
    text = f"Uplink / downlink reduced by {words} {up} / {down} % ({model})"
    grids = [
        grid(source, "table-communication", ("fedpurin",), replace(request, datasets=datasets))
        for request in (PAPER, SIXTY, Request(scale="quick"))
    ]
    figures, scales, briefs, reached = [], [], [], []
    for column in grids[0].columns:
        ours, dense = ([r for g in grids for r in g.records(row, column)] for row in ("fedpurin", "fedavg"))
        if ours and dense:
            longest = [record for record in ours if record.done == ours[0].done]
            saved = saving(longest, dense, share)
            figures.append(f"{dataset_label(column[0])}: {saved[0]:.1f} / {saved[1]:.1f} %")
            scales.append(f"T = {longest[0].done}, {_seeds(len(longest))}")
            briefs.append(f"{figures[-1]} (T = {longest[0].done})")
            if column[0] == "cifar-100":
                briefs.append(
                    f"beside a FedAvg without never-used weights {saved_of_used(longest, dense):.0f} % up"
                )
            reached.append(saved[0] >= up - 0.05 and saved[1] >= down - 0.05)
    needs = grids[0].needs or ("" if len(figures) == len(datasets) else "a run of FedAvg")
    figure, scale = "; ".join(figures) or NOTHING, "; ".join(dict.fromkeys(scales)) or "-"
    return Claim(text, needs, figure, scale, all(reached), "; ".join(briefs))


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number > 1 else ''}"


# Accuracy


def _wins(source: Source, rival: str, claimed: int) -> Claim:
    paper = grid(source, "table-accuracy", ("fedpurin", rival))
    text = f"FedPURIN above {paper.recipe.row(rival).label} in {claimed} of 9 settings"
    if paper.needs:
        figure, scale = _longest(source, "fedpurin", rival)
        return Claim(text, paper.needs, figure, scale, brief=figure.partition("; ")[0])
    wins = sum(paper.best("fedpurin", c) > paper.best(rival, c) for c in paper.columns)
    return decided(text, f"{wins} of {len(paper.columns)}", wins >= claimed)


def _longest(source: Source, own: str, other: str) -> tuple[str, str]:
    """The paired difference in the longest run of the paper's setting, in the one of most seeds, and at mini
    scale."""
    plain = [r for r in source.store.records() if trains_as_published(r.config) and not r.is_replicate]
    gaps = []
    for length, column in {(r.config.run.rounds, r.column) for r in plain}:
        here = [r for r in plain if (r.config.run.rounds, r.column) == (length, column)]
        ours, theirs = ([r for r in here if r.config.run.method == name] for name in (own, other))
        gap = paired(finished_first(_nearest(ours)), finished_first(_nearest(theirs)))
        if gap is not None:
            gaps.append((column_label(column), gap))
    longest = sorted(gaps, key=lambda found: (found[1].rounds, found[1].seeds))[-1:]
    broadest = sorted(gaps, key=lambda found: (found[1].seeds, found[1].rounds))[-1:]
    said = {
        f"{where}, round {gap.rounds}, {_seeds(gap.seeds)}: {gap.text()}, {gap.verdict_here}": "fewer rounds"
        for where, gap in (*broadest, *longest)
    }
    recipe, mini = RECIPES["table-accuracy"], replace(source, request=MINI)
    column = ("fashion-mnist-mini", 0.5)
    ours, theirs = (mini.records(recipe, recipe.row(name), column) for name in (own, other))
    small = paired(ours, theirs)
    if small is not None:
        said[f"mini, {_seeds(small.seeds)}: {small.text()}, {small.verdict_here}"] = "mini scale"
    return ("; ".join(said), ", ".join(dict.fromkeys(said.values()))) if said else (NOTHING, "-")


def _nearest(records: list[Record]) -> list[Record]:
    """Of several betas the one nearest to the paper's share of the rounds."""
    betas = {r.beta for r in records if r.beta is not None}
    if not betas:
        return records
    best = min(betas, key=lambda beta: abs(beta / records[0].config.run.rounds - 0.5))
    return [r for r in records if r.beta == best]


def _beats_separate(source: Source) -> Claim:
    text, others = "Every method beats training alone", PAPER_METHODS[1:]
    paper = grid(source, "table-accuracy", PAPER_METHODS)

    def beaten(here: Grid, *columns: Column) -> tuple[int, int]:
        above = []
        for row in others:
            both = here.shared(row, "separate")
            above += [both.best(row, c) > both.best("separate", c) for c in columns if both.records(row, c)]
        return sum(above), len(above)

    if not paper.needs:
        above, pairs = beaten(paper, *paper.columns)
        return decided(text, f"{above} of {pairs}", above == pairs)
    found: dict[Column, tuple[int, str]] = {}
    for request in (PAPER, SIXTY, MINI):
        here = grid(source, "table-accuracy", ("separate",), request)
        for column in here.full:
            above, pairs = beaten(here, column)
            gaps = [paired(here.records(row, column), here.records("separate", column)) for row in others]
            ends = sum(gap is not None and gap.mean > 0 for gap in gaps)
            where = f"{column_label(column)}, T = {here.length(column)}"
            said = f"{where}: best round {above} of {pairs}, last ten rounds {ends} of {pairs}"
            if pairs and column not in found:  # the longest; a long run's first rounds are no other run
                found[column] = pairs, said
    most = max(found, key=lambda column: (column[0] in PAPER_SETS, found[column][0]), default=None)
    figure = "; ".join(said for _, said in found.values()) or NOTHING
    return Claim(
        text,
        paper.needs,
        figure,
        "fewer rounds or seeds" if found else "-",
        brief=found[most][1] if most else "",
    )


def _more_with_alpha(source: Source) -> Claim:
    text, paper = "The gain over training alone grows with α", grid(source, "table-accuracy", PAPER_METHODS)
    pairs = [(row, name) for row in PAPER_METHODS[1:] for name in PAPER_SETS]

    def rising(value: Callable[[str, Column], float]) -> int:
        """In how many (method, data set) the gain over Separate rises from each alpha to the next."""
        columns = {name: [c for c in paper.columns if c[0] == name] for name in PAPER_SETS}
        gains = [[value(row, c) - value("separate", c) for c in columns[name]] for row, name in pairs]
        return sum(gain == sorted(gain) for gain in gains)

    printed = rising(lambda row, c: source.paper.number("accuracy", row, *c) or 0.0)
    said = f"the paper's own table: in {printed} of {len(pairs)} (method, data set)"
    if paper.needs:
        return Claim(text, paper.needs, said)
    ours = rising(paper.best)
    return decided(text, f"{ours} of {len(pairs)}; {said}", ours == len(pairs))


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
    paper = grid(source, "table-terms", (first, second))

    def said(here: Grid, column: Column) -> str:
        gap = paired(here.records(first, column), here.records(second, column))
        return f"{gap.text()}, {gap.verdict_here}" if gap else ""

    if paper.needs:
        return Claim(text, paper.needs, *hint(paper, said))
    ours, theirs = ([r for c in paper.columns for r in paper.records(row, c)] for row in (first, second))
    gap = paired(ours, theirs)
    verdict = None if gap is None else judge(gap)
    figure = "-" if gap is None else f"nine settings together: {gap.text()} points, {gap.verdict}"
    needs = "a smaller interval" if verdict is None else ""
    return Claim(text, needs, figure, "the paper's scale", bool(verdict))


NORM_READINGS = {"whole": "without minus sent whole", "selected": "without minus selected"}


def _gap_of(row: str) -> Callable[[Grid, Column], str]:
    return lambda here, column: f"{here.best('no', column) - here.best(row, column):+.2f}"


def _norm_gap(source: Source) -> Claim:
    text = "Batch norm is better kept at home, by a gap that grows with α"
    paper = grid(source, "figure-bn", ("no", "whole", "selected"))

    def gap(here: Grid, row: str, column: Column) -> float:
        return here.best("no", column) - here.best(row, column)

    def said(here: Grid, c: Column) -> str:
        return f"{gap(here, 'whole', c):+.2f} (sent whole), {gap(here, 'selected', c):+.2f} (selected)"

    if paper.needs:  # the two readings of "with BN" may be there at other scales
        hints = {row: hint(grid(source, "figure-bn", ("no", row)), _gap_of(row)) for row in NORM_READINGS}
        figures = "; ".join(f"{NORM_READINGS[row]}: {figure}" for row, (figure, _) in hints.items())
        scales = "; ".join(dict.fromkeys(scale for _, scale in hints.values()))
        return Claim(text, paper.needs, figures, scales)
    gaps = [[gap(paper, row, c) for c in paper.columns] for row in ("whole", "selected")]
    return decided(text, paper.say(said), any(values[0] > 0 and values == sorted(values) for values in gaps))


def _rises_with_tau(source: Source) -> Claim:
    text, rows = "Accuracy rises with τ", [row.id for row in RECIPES["figure-tau"].rows]
    paper = grid(source, "figure-tau", rows)

    def said(here: Grid, column: Column) -> str:
        return ", ".join(f"{here.best(row, column):.1f}" for row in rows)

    if paper.needs:
        figure, scale = hint(paper, said)
        return Claim(text, paper.needs, f"τ = 0.2 to 0.6: {figure}", scale)
    curves = [[paper.best(row, c) for row in rows] for c in paper.columns]
    return decided(text, paper.say(said), all(values == sorted(values) for values in curves))
