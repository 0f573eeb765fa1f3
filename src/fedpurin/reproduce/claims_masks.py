"""The claims about masks and about what scoring costs, from counts of critical parameters and checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpurin.reproduce.claim import NOTHING, Claim
from fedpurin.reproduce.claims_counts import (
    LONG,
    RARELY,
    SHARED,
    counts,
    filled_though_rare,
    layers_agree,
    missing,
    missing_seeds,
    nothing_unselected,
    uniform_ends,
)
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import PAPER_SETS, option, paper_config, trains_as_published
from fedpurin.reproduce.source import Source, column_label, describe_line, seed_numbers
from fedpurin.reproduce.stats import seeds_together
from fedpurin.runs.same_setting import config_of, setting_of

ENOUGH = 5  # rounds after beta that can show a movement
FEW_SECONDS = 0.05  # share of training: "costs little"
LEAST_SHOWN = 0.001  # below it the clock tells nothing
WINDOW = 20  # rounds whose median is compared


def mask_claims(source: Source) -> list[Claim]:
    return [
        _support_moves(source),
        nothing_unselected(source),
        layers_agree(source),
        uniform_ends(source),
        _cheap(source, "Scoring costs little beside training", "mask"),
        _cheap(source, "The quadratic term costs little beside training", "mask_hessian", "mask"),
        _lock_in(source),
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
        f"not zero outside a client's mask: {before} % of d in the {WINDOW} rounds up to β = {record.beta}, "
        f"{after} % in the {WINDOW} up to {record.done} (seed {numbers})"
    )
    long_enough = record.done - (record.beta or 0) >= ENOUGH and trains_as_published(record.config)
    needs = "a longer run of the paper's setting"
    if long_enough:
        needs = missing({r.config.run.seed for r in same}, min(r.done for r in same), "runs of")
    c = record.config
    scale = f"{column_label(record.column)}, {c.model.name}, T = {c.run.rounds}"
    brief = f"{before} % of d outside a client's mask before β, {after} % at the end ({_told(same)})"
    return Claim(text, needs, figure, scale, all(after < before for before, after in moves), brief)


def _told(records: list[Record]) -> str:
    return seed_numbers(record.config.run.seed for record in records)


def _weight(r: Record, seeds: int) -> tuple[bool, int, bool, int, int, float]:
    """Long after beta, large, long enough, of many seeds, long; then: beta near the paper's share."""
    beta = r.beta or 0
    nearness = -abs(beta / r.config.run.rounds - 0.5)
    return (r.done - beta >= ENOUGH, r.line["parameters"], r.done >= LONG, seeds, r.done, nearness)


def _outside(record: Record) -> tuple[float, float]:
    """Percent of the exchanged parameters, up to round beta and at the end. A median: when one client goes
    astray for some rounds it chooses other weights, which everybody is then sent."""
    outside_t = 100 * np.array(record.line["bytes"]["outside"]) / record.line["exchanged"]
    beta = record.beta or 1
    window = min(WINDOW, beta, record.done - beta)
    return float(np.median(outside_t[beta - window : beta])), float(np.median(outside_t[-window:]))


def _standard(record: Record) -> bool:
    options = [option(record.config, name) for name in ("average", "noncritical", "score")]
    return options == ["paper", "global", "gradient"]


# Checks


def _lock_in(source: Source) -> Claim:
    """If zeroed weights stayed zero, what is rarely critical would be zero in the global model too.

    From the counts: how often the global model was not zero where a client's weight was rarely critical. From
    the check of one client: how many of the weights that were zeroed come back after one more local training.
    """
    text = "(our explanation) masks lock in: a weight set to zero has score zero and stays zero"
    parts = []
    filled = [share for line in counts(source) if (share := filled_though_rare(line)) is not None]
    if filled:
        parts.append(
            f"where a client's weight is critical in under {100 * RARELY:.0f} % of the rounds, the global "
            f"model is not zero in {100 * float(np.mean(filled)):.0f} % of them (weights with counts kept)"
        )
    checks = [x for x in source.store.lines("perturbation") if "lock_in" in x]
    if not checks:
        return Claim(text, "check-perturbation", "; ".join(parts) or NOTHING)
    line = max(checks, key=_size)
    same = [x for x in checks if setting_of(x["config"]) == setting_of(line["config"])]
    zero, again = (
        float(np.mean([x["lock_in"][name] for x in same])) for name in ("score_zero", "selected_again")
    )
    brief = (
        f"zeroed by the batch score and trained on: score zero {100 * zero:.1f} %, critical again "
        f"{100 * again:.0f} % (chance: 50 %)"
    )
    parts.append(brief)
    holds = zero > SHARED and again < RARELY
    seeds = {x["config"]["run"]["seed"] for x in same}
    needs = _needs_check(line) or (missing_seeds(seeds) if holds else "")  # one counter-example refutes
    return Claim(text, needs, "; ".join(parts), describe_line(line), holds, brief)


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
