"""Each claim of the paper's text beside our figure: holds, fails, undecided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedpurin.reproduce.accuracy import Source, column_label
from fedpurin.reproduce.cells import config_of
from fedpurin.reproduce.communication import saving
from fedpurin.reproduce.perturbation_report import describe
from fedpurin.reproduce.recipes import RECIPES, Recipe, Row
from fedpurin.reproduce.scales import Request, trains_as_published
from fedpurin.reproduce.stats import paired
from fedpurin.reproduce.store import Record
from fedpurin.reproduce.tables import Item, Table

SETTINGS = 9  # data sets x alphas of the main table
SMALL_CHANGE = 1.0  # percentage points: "changes little"
ENOUGH = 5  # rounds after beta that can show a movement
FEW_SECONDS = 0.05  # share of training: "costs little"


@dataclass(frozen=True)
class Claim:
    text: str
    figure: str
    verdict: str  # holds, fails, undecided
    scale: str


def at(source: Source, scale: str) -> Source:
    return replace(source, request=Request(scale=scale))


def describe_scale(request: Request) -> str:
    return {"paper": "the paper's scale", "quick": "short runs", "mini": "mini scale"}[request.scale]


def evidence(source: Source, recipe: Recipe) -> Iterator[Source]:
    """The scales that have anything for this recipe, the paper's own first."""
    for scale in ("paper", "quick", "mini"):
        here = at(source, scale)
        if any(here.store.finished(cell.config) for cell in recipe.cells(here.request)):
            yield here


def all_claims(source: Source) -> list[Claim]:
    return [
        *_savings(source),
        _wins(source, "fedbn", 5),
        _wins(source, "fedcac", 8),
        _gradient_beats_delta(source),
        _hessian_changes_little(source),
        _support_moves(source),
        _nothing_unselected(source),
        _layers_agree(source),
        _scoring_is_cheap(source),
    ]


def claims_table(source: Source) -> Table:
    rows: list[list[Item]] = [[c.text, c.figure, f"**{c.verdict}**", c.scale] for c in all_claims(source)]
    return Table("Claims of the paper.", ["claim", "here", "verdict", "measured at"], rows, [])


def _missing(text: str) -> Claim:
    return Claim(text, "nothing measured yet", "undecided", "-")


# Communication


def _savings(source: Source) -> list[Claim]:
    return [
        _saving(source, "at least", "resnet8", ("fashion-mnist", "cifar-10"), 0.5),
        _saving(source, "up to", "resnet10", ("cifar-100",), 170 / 300),
    ]


def _saving(source: Source, words: str, model: str, datasets: tuple[str, ...], share: float) -> Claim:
    up, down = source.paper.saving(model)
    text = f"Uplink / downlink reduced by {words} {up} / {down} % ({model})"
    recipe = RECIPES["table-communication"]
    rows = {row.id: row for row in recipe.rows}
    for here in evidence(source, recipe):
        if here.request.scale == "mini":
            continue
        found = []
        for dataset in datasets:
            purin, dense = (
                here.records(recipe, rows[name], (dataset, 0.1)) for name in ("fedpurin", "fedavg")
            )
            if purin and dense and all(r.complete for r in purin):
                found.append((dataset, *saving(purin, dense, share)))
        if not found:
            continue
        figure = "; ".join(f"{name}: {u:.1f} / {d:.1f} %" for name, u, d in found)
        reached = all(u >= up - 0.05 and d >= down - 0.05 for _, u, d in found)
        whole = here.request.scale == "paper" and len(found) == len(datasets)
        verdict = ("holds" if reached else "fails") if whole else "undecided"
        return Claim(text, figure, verdict, describe_scale(here.request))
    return _missing(text)


# Accuracy


def _wins(source: Source, rival: str, claimed: int) -> Claim:
    recipe = RECIPES["table-accuracy"]
    rows = {row.id: row for row in recipe.rows}
    text = f"FedPURIN above {rows[rival].label} in {claimed} of {SETTINGS} settings"
    full = at(source, "paper")
    wins, seen = 0, 0
    for column in recipe.columns(full.request):
        ours, theirs = (full.records(recipe, rows[name], column) for name in ("fedpurin", rival))
        if ours and theirs and all(r.complete for r in ours + theirs):
            seen += 1
            wins += np.mean([r.best() for r in ours]) > np.mean([r.best() for r in theirs])
    if seen == SETTINGS:
        return Claim(text, f"{wins} of {seen}", "holds" if wins >= claimed else "fails", "the paper's scale")
    gap = _shorter(source, recipe, rows["fedpurin"], rows[rival])
    here = f"measured at full length: {seen} of {SETTINGS} settings; {gap[0]}"
    return Claim(text, here, "undecided", gap[1])


def _shorter(source: Source, recipe: Recipe, own: Row, other: Row) -> tuple[str, str]:
    """The paired difference in the longest run of the paper's size, else at mini scale."""
    pairs = _same_setting(source.store.records(), own.method, other.method)
    texts = []
    for ours, theirs in pairs:
        gap = paired([ours], [theirs])
        if gap is not None:
            column = (ours.config.data.dataset, ours.config.data.alpha)
            texts.append(
                (gap.rounds, f"{column_label(column)}, round {gap.rounds}: {gap.text()}, {gap.verdict}")
            )
    here = at(source, "mini")
    column = ("fashion-mnist-mini", 0.5)
    small = paired(here.records(recipe, own, column), here.records(recipe, other, column))
    parts = [max(texts)[1]] if texts else []
    scales = ["fewer rounds"] if texts else []
    if small is not None:
        parts.append(f"mini: {small.text()}, {small.verdict}")
        scales.append("mini scale")
    return "; ".join(parts) or "nothing shorter either", ", ".join(scales) or "-"


def _same_setting(records: list[Record], own: str, other: str) -> list[tuple[Record, Record]]:
    """Runs of two methods over the same clients, of any length but otherwise as the paper's."""
    plain = [r for r in records if trains_as_published(r.config)]
    return [
        (a, b)
        for a in plain
        for b in plain
        if (a.config.run.method, b.config.run.method) == (own, other)
        and (a.split, a.config.run.rounds) == (b.split, b.config.run.rounds)
    ]


def _gradient_beats_delta(source: Source) -> Claim:
    return _compare_terms(
        source, "Exact gradients beat delta on the whole", "gradient", "delta", little=False
    )


def _hessian_changes_little(source: Source) -> Claim:
    text = "The quadratic term changes little"
    return _compare_terms(source, text, "gradient-hessian", "gradient", little=True)


def _compare_terms(source: Source, text: str, first: str, second: str, *, little: bool) -> Claim:
    recipe = RECIPES["table-terms"]
    rows = {row.id: row for row in recipe.rows}
    for here in evidence(source, recipe):
        for column in recipe.columns(here.request):
            gap = paired(*(here.records(recipe, rows[name], column) for name in (first, second)))
            if gap is None:
                continue
            if here.request.scale != "paper":
                verdict = "undecided"  # a small setting hints, it does not decide
            elif little:
                inside = max(abs(gap.low), abs(gap.high)) < SMALL_CHANGE
                verdict = "holds" if inside else "fails" if abs(gap.mean) > SMALL_CHANGE else "undecided"
            else:
                verdict = {"better": "holds", "worse": "fails"}.get(gap.verdict, "undecided")
            figure = f"{column_label(column)}: {gap.text()} points, {gap.verdict}"
            return Claim(text, figure, verdict, describe_scale(here.request))
    return _missing(text)


# Masks


def _support_moves(source: Source) -> Claim:
    """Non-zero values of the global model outside a client's own mask: fewer after beta than at beta?"""
    text = "The global model's support moves towards the clients' critical sets after beta"
    records = [
        r
        for r in source.store.records()
        if r.config.run.method == "fedpurin" and r.done > r.config.method.beta and _standard(r)
    ]
    if not records:
        return _missing(text)
    after_beta = {r.line["key"]: r.done - r.config.method.beta for r in records}
    record = max(records, key=lambda r: (after_beta[r.line["key"]] >= ENOUGH, r.line["parameters"], r.done))
    outside_t = np.array(record.line["bytes"]["outside"]) / record.line["exchanged"]
    beta = record.config.method.beta
    before, after = 100 * float(outside_t[beta - 1]), 100 * float(outside_t[-1])
    figure = "global values outside a client's mask: "
    figure += f"{before:.1f} % of d in round β = {beta}, {after:.1f} % in round {record.done}"
    long_enough = record.done - beta >= ENOUGH
    verdict = ("holds" if after < before else "fails") if long_enough else "undecided"
    return Claim(text, figure, verdict, _where(record))


def _standard(record: Record) -> bool:
    method = record.config.method
    return (method.average, method.noncritical, method.score) == ("paper", "global", "gradient")


def _where(record: Record) -> str:
    c = record.config
    return f"{column_label((c.data.dataset, c.data.alpha))}, {c.model.name}, T = {c.run.rounds}"


def _coverage(source: Source) -> dict | None:  # type: ignore[type-arg]
    lines = [line for line in source.store.lines("coverage") if line["config"]["run"]["method"] == "fedpurin"]
    return max(
        lines,
        key=lambda line: (sum(np.prod(x["shape"]) for x in line["layers"]), line["rounds"]),
        default=None,
    )


def _nothing_unselected(source: Source) -> Claim:
    text = "No parameter stays unselected for ever"
    line = _coverage(source)
    if line is None:
        return _missing(text)
    never = 100 * line["never"]
    chance = 100 * 0.5 ** line["rounds"]
    figure = f"{never:.2f} % of a client's parameters never critical in {line['rounds']} rounds"
    figure += f" (independent coins: {chance:.2f} %)"
    return Claim(
        text,
        figure,
        "holds" if never == 0 else "undecided" if line["rounds"] < 100 else "fails",
        _line_scale(line),
    )


def _layers_agree(source: Source) -> Claim:
    text = "Convolutional layers agree across clients, the classifier does not"
    line = _coverage(source)
    if line is None:
        return _missing(text)
    body = [x["agreement"] for x in line["layers"] if len(x["shape"]) == 4 and x["agreement"] is not None]
    head = [x["agreement"] for x in line["layers"] if x["kind"] == "head" and len(x["shape"]) == 2]
    if not body or not head or head[0] is None:
        return _missing(text)
    figure = (
        f"correlation of counts between clients: convolutions {np.mean(body):.2f}, classifier {head[0]:.2f}"
    )
    return Claim(text, figure, "holds" if np.mean(body) > head[0] else "fails", _line_scale(line))


def _line_scale(line: dict) -> str:  # type: ignore[type-arg]
    c = config_of(line["config"])
    column = column_label((c.data.dataset, c.data.alpha))
    return f"{column}, {c.model.name}, {line['rounds']} rounds"


def _scoring_is_cheap(source: Source) -> Claim:
    text = "Scoring costs little beside training"
    lines = list(source.store.lines("perturbation"))
    if not lines:
        return _missing(text)
    line = max(lines, key=lambda x: x["seconds"]["training"])
    share = line["seconds"]["mask"] / line["seconds"]["training"]
    figure = f"score and mask take {100 * share:.1f} % of a round's local training"
    return Claim(text, figure, "holds" if share < FEW_SECONDS else "fails", describe(line))
