"""The claims about masks and about what scoring costs, from counts of critical parameters and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.reproduce.claim import NOTHING, Claim
from fedpurin.reproduce.record import unpack_counts
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import PAPER_SETS, option, paper_config, trains_as_published
from fedpurin.reproduce.source import Source, column_label, describe_line
from fedpurin.reproduce.stats import seeds_together
from fedpurin.runs.same_setting import config_of, setting_of

ENOUGH = 5  # rounds after beta that can show a movement
SEEDS = 3
LONG = 100  # rounds after which "never" and "agree" begin to mean something: both move with the rounds
FEW_SECONDS = 0.05  # share of training: "costs little"
LEAST_SHOWN = 0.001  # below it the clock tells nothing
SHARED = 0.5  # clients agree where they share more than half of the variance of their counts
RARELY = 0.1  # share of the rounds


def mask_claims(source: Source) -> list[Claim]:
    return [
        _support_moves(source),
        _nothing_unselected(source),
        _layers_agree(source),
        _lock_in(source),
        _uniform_ends(source),
        _cheap(source, "Scoring costs little beside training", "mask"),
        _cheap(source, "The quadratic term costs little beside training", "mask_hessian", "mask"),
    ]


# The support of the global model


def _support_moves(source: Source) -> Claim:
    """Non-zero values of the global model outside a client's own mask: fewer after beta than at beta?"""
    text = "The global model's support moves towards the clients' critical sets after beta"
    records = [
        r
        for r in source.store.records()
        if r.config.run.method == "fedpurin" and r.beta is not None and r.done > r.beta and _standard(r)
    ]
    if not records:
        return Claim(text, "a run that goes on after beta")
    same = max(seeds_together(records), key=lambda seeds: _weight(seeds[0], len(seeds)))
    record = same[0]
    moves = [_outside(r) for r in same]
    before, after = (", ".join(f"{share:.1f}" for share in shares) for shares in zip(*moves, strict=True))
    numbers = ", ".join(str(r.config.run.seed) for r in same)
    figure = (
        f"not zero outside a client's mask: {before} % of d in round β = {record.beta}, {after} % in round "
        f"{record.done} (seed {numbers})"
    )
    long_enough = record.done - (record.beta or 0) >= ENOUGH and trains_as_published(record.config)
    needs = "a longer run of the paper's setting"
    if long_enough:
        needs = _missing({r.config.run.seed for r in same}, min(r.done for r in same), "runs of")
    c = record.config
    scale = f"{column_label(record.column)}, {c.model.name}, T = {c.run.rounds}"
    return Claim(text, needs, figure, scale, all(after < before for before, after in moves))


def _weight(r: Record, seeds: int) -> tuple[bool, int, bool, int, int, float]:
    """Long after beta, large, long enough, of many seeds, long; then: beta near the paper's share."""
    beta = r.beta or 0
    nearness = -abs(beta / r.config.run.rounds - 0.5)
    return (r.done - beta >= ENOUGH, r.line["parameters"], r.done >= LONG, seeds, r.done, nearness)


def _outside(record: Record) -> tuple[float, float]:
    """Percent of the exchanged parameters, in round beta and in the last."""
    outside_t = 100 * np.array(record.line["bytes"]["outside"]) / record.line["exchanged"]
    return float(outside_t[(record.beta or 1) - 1]), float(outside_t[-1])


def _standard(record: Record) -> bool:
    options = [option(record.config, name) for name in ("average", "noncritical", "score")]
    return options == ["paper", "global", "gradient"]


def _missing_seeds(seeds: set[int]) -> str:
    return f"{n} more seed{'s' if n > 1 else ''}" if (n := SEEDS - len(seeds)) > 0 else ""


def _missing(seeds: set[int], rounds: int, what: str) -> str:
    """Seeds, and rounds."""
    parts = [_missing_seeds(seeds), f"{what} {LONG} rounds or more" if rounds < LONG else ""]
    return " and ".join(part for part in parts if part)


# Counts


def _counts(source: Source) -> list[dict[str, Any]]:
    """The lines about the largest counted setting of FedPURIN, long ones first, one per seed."""
    lines = [x for x in source.store.lines("coverage") if x["config"]["run"]["method"] == "fedpurin"]
    settings = seeds_together(Record(line) for line in lines)
    if not settings:
        return []

    def weight(seeds: list[Record]) -> tuple[float, bool, int, int]:
        line = seeds[0].line
        size = float(sum(np.prod(layer["shape"]) for layer in line["layers"]))
        return size, line["rounds"] >= LONG, len(seeds), line["rounds"]

    return [record.line for record in max(settings, key=weight)]


def _needs(lines: Sequence[dict[str, Any]]) -> str:
    """Three seeds of the paper's setting, over enough rounds: agreement and "never" change with them."""
    if not trains_as_published(config_of(lines[0]["config"])):
        return "counts of the paper's setting"
    seeds = {line["config"]["run"]["seed"] for line in lines}
    return _missing(seeds, min(line["rounds"] for line in lines), "counts over")


def _counted(line: dict[str, Any]) -> str:
    """The paper's own figures count with delta scores."""
    record = Record(line)
    score, where = option(record.config, "score"), column_label(record.column)
    return f"{where}, {record.config.model.name}, {score} score, {line['rounds']} rounds"


def _nothing_unselected(source: Source) -> Claim:
    text, lines = "No parameter stays unselected for ever", _counts(source)
    if not lines:
        return Claim(text, "counts of critical parameters")
    never = 100 * float(np.mean([line["never"] for line in lines]))
    chance = 100 * 0.5 ** lines[0]["rounds"]
    figure = (
        f"{never:.2f} % of a client's parameters never critical in {lines[0]['rounds']} rounds "
        f"(independent coins: {chance:.2f} %)"
    )
    return Claim(text, _needs(lines), figure, _counted(lines[0]), never == 0)


def _layers_agree(source: Source) -> Claim:
    """Agreement: the squared correlation of two clients' counts is above one half; below, there is none."""
    text, lines = "Convolutional layers agree across clients, the classifier does not", _counts(source)
    pairs = [pair for line in lines if (pair := _agreement(line)) is not None]
    if not pairs:
        return Claim(text, "counts of critical parameters")
    body, head = np.mean(pairs, axis=0)
    figure = (
        f"shared variance of counts (bar: {SHARED:g}): convolutions {body**2:.2f}, classifier {head**2:.2f}"
    )
    return Claim(text, _needs(lines), figure, _counted(lines[0]), bool(body**2 > SHARED > head**2))


def _agreement(line: dict[str, Any]) -> tuple[float, float] | None:
    body = [x["agreement"] for x in line["layers"] if len(x["shape"]) == 4 and x["agreement"] is not None]
    head = [x["agreement"] for x in line["layers"] if x["kind"] == "head" and len(x["shape"]) == 2]
    return (float(np.mean(body)), float(head[0])) if body and head and head[0] is not None else None


def _lock_in(source: Source) -> Claim:
    """If zeroed weights stayed zero, what is rarely critical would be zero in the global model too.

    From the counts: how often the global model was not zero where a client's weight was rarely critical. From
    the check of one client: how many of the weights that were zeroed come back after one more local training.
    """
    text = "(our explanation) masks lock in: a weight set to zero has score zero and stays zero"
    parts = []
    filled = [share for line in _counts(source) if (share := _filled_though_rare(line)) is not None]
    if filled:
        parts.append(
            f"critical in under {100 * RARELY:.0f} % of the rounds: not zero in the global model in "
            f"{100 * float(np.mean(filled)):.0f} % of them"
        )
    checks = [x for x in source.store.lines("perturbation") if "lock_in" in x]
    if not checks:
        return Claim(text, "check-perturbation", "; ".join(parts) or NOTHING)
    line = max(checks, key=_size)
    same = [x for x in checks if setting_of(x["config"]) == setting_of(line["config"])]
    zero, again = (
        float(np.mean([x["lock_in"][name] for x in same])) for name in ("score_zero", "selected_again")
    )
    parts.append(
        f"zeroed by the batch score and trained on: score zero {100 * zero:.1f} %, critical again "
        f"{100 * again:.0f} % (chance: 50 %)"
    )
    holds = zero > SHARED and again < RARELY
    seeds = {x["config"]["run"]["seed"] for x in same}
    needs = _needs_check(line) or (_missing_seeds(seeds) if holds else "")  # one counter-example refutes
    return Claim(text, needs, "; ".join(parts), describe_line(line), holds)


def _filled_though_rare(line: dict[str, Any]) -> float | None:
    """Mean share of the rounds in which the global model was not zero, over the rarely critical."""
    rows, rare = len(line["client_ids"]) + 1, []
    for layer in line["layers"]:
        if "counts" in layer:
            counts = unpack_counts(layer["counts"], rows) / line["rounds"]
            rare += [counts[-1][client < RARELY] for client in counts[:-1]]
    values = np.concatenate(rare) if rare else np.zeros(0)
    return float(values.mean()) if len(values) else None


def _uniform_ends(source: Source) -> Claim:
    """Flatness: entropy of the distribution of counts over that of a level one (1 = uniform)."""
    text = "Selection is uniform in the pre-convolution and the last block, peaked in the middle"
    lines = [line for line in _counts(source) if any(x["name"] == "pre_conv.weight" for x in line["layers"])]
    if not lines:
        return Claim(text, "counts of a ResNet of the paper")
    names = [x["name"] for x in lines[0]["layers"] if "histogram" in x and x["kind"] != "head"]
    flat = {name: float(np.mean([_flatness(line, name) for line in lines])) for name in names}
    ends, middle = [flat[names[0]], flat[names[-1]]], [flat[name] for name in names[1:-1]]
    shown = [f"{name.removesuffix('.weight')} {value:.2f}" for name, value in flat.items()]
    figure = f"flatness (1: uniform): {', '.join(shown)}"
    return Claim(text, _needs(lines), figure, _counted(lines[0]), min(ends) > max(middle))


def _flatness(line: dict[str, Any], name: str) -> float:
    layer = next(x for x in line["layers"] if x["name"] == name)
    clients = np.array(layer["histogram"][:-1], dtype=np.float64)
    shares = clients.sum(axis=0) / clients.sum()
    present = shares[shares > 0]
    return float(-(present * np.log(present)).sum() / np.log(len(shares)))


# Checks


def _of_the_paper(line: dict[str, Any]) -> bool:
    """Training may be shorter: scoring then only costs a larger share of it."""
    config = config_of(line["config"])
    dataset = config.data.dataset
    return dataset in PAPER_SETS and config.model == paper_config(dataset, "fedpurin").model


def _size(line: dict[str, Any]) -> tuple[bool, float]:
    return _of_the_paper(line), float(line["seconds"]["training"])


def _needs_check(line: dict[str, Any]) -> str:
    return "" if _of_the_paper(line) else "check-perturbation on a model of the paper"


def _cheap(source: Source, text: str, name: str, base: str = "") -> Claim:
    """Seconds of `name`, less those of `base`, as a share of one round's local training."""
    lines = [x for x in source.store.lines("perturbation") if name in x["seconds"] and "clock" in x]
    if not lines:
        return Claim(text, "check-perturbation by the processor's clock")
    line = max(lines, key=_size)
    seconds = line["seconds"]
    share = (seconds[name] - (seconds[base] if base else 0.0)) / seconds["training"]
    said = f"{100 * share:.1f}" if share >= LEAST_SHOWN else f"under {100 * LEAST_SHOWN:.1f}"
    figure = f"{said} % of a round's local training (bar: {100 * FEW_SECONDS:.0f} %)"
    return Claim(text, _needs_check(line), figure, describe_line(line), share < FEW_SECONDS)
