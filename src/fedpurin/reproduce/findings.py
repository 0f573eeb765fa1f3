"""Sentences of docs/reproduction.md whose numbers come from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpurin.reproduce.accuracy_tables import mean_mib
from fedpurin.reproduce.communication import UNUSED, saved_of_used, split_at_beta, traffic, used
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source, seed_numbers
from fedpurin.reproduce.stats import partners
from fedpurin.runs.same_setting import method_label
from fedpurin.runs.traffic import running_mean

CIFAR = ("cifar-10", 0.5)
PASSED = 69  # percent


def sixty_rounds(source: Source) -> dict[str, list[Record]]:
    """CIFAR-10, alpha 0.5, T = 60: the finished seeds of each method of the paper."""
    here = replace(source, request=Request(scale="paper", rounds=60))
    recipe = RECIPES["table-accuracy"]
    by_method = {row.method: here.records(recipe, row, CIFAR) for row in recipe.rows}
    finished = {name: [r for r in records if r.complete] for name, records in by_method.items()}
    return {name: records for name, records in finished.items() if records}


def curve_findings(source: Source) -> Paragraphs:
    """What the curves over 60 rounds show, on every seed that there is."""
    runs = sixty_rounds(source)
    if "fedpurin" not in runs:
        return Paragraphs(["- nothing measured yet"])
    own = runs.pop("fedpurin")
    lines = [_above(own, others) for others in runs.values()]
    passed = "; ".join(passes(records) for records in (own, *runs.values()))
    lines.append(f"The round in which {PASSED} % after training (mean of three rounds) is passed: {passed}.")
    lines.append(_early(own, list(runs.values())))
    return Paragraphs([f"- {line}" for line in lines])


def _name(records: Sequence[Record]) -> str:
    return method_label(records[0].config.run.method)


def _above(own: list[Record], others: list[Record]) -> str:
    """In how many rounds the first is above as uploaded, and from which on for good."""
    said = []
    for record, other in partners(own, others):
        above = record.curve() > other.curve()
        below = np.flatnonzero(~above)
        since = int(below[-1]) + 2 if len(below) else 1
        ends = f"from {since} on in all" if since <= record.done else "not in the last one"
        said.append(f"{int(above.sum())} of {record.done} rounds, {ends} (seed {record.config.run.seed})")
    return f"{_name(own)} is above {_name(others)}, as uploaded, in {'; in '.join(said)}."


def passes(records: list[Record]) -> str:
    rounds = []
    for record in records:
        reached = np.flatnonzero(100 * running_mean(record.curve("trained")) >= PASSED)
        rounds.append(str(int(reached[0]) + 1) if len(reached) else "never")
    seeds = seed_numbers(record.config.run.seed for record in records)
    return f"{_name(records)} {', '.join(rounds)} ({seeds})"


def _early(own: list[Record], rivals: list[list[Record]]) -> str:
    """How weak the first rounds are, and what masking and merging cost, beside the others' merging."""
    until = slice(0, own[0].beta)

    def mean(records: list[Record], moment: str) -> float:
        return float(np.mean([record.mean(moment, until) for record in records]))

    trained, sent, merged = (mean(own, moment) for moment in ("trained", "upload", "merged"))
    others = [
        f"{_name(rs)} is at {mean(rs, 'trained'):.1f} % after training and loses "
        f"{mean(rs, 'trained') - mean(rs, 'merged'):.1f} by merging"
        for rs in rivals
        if rs[0].mib("up").any()
    ]
    return (
        f"Early rounds (1 to β = {own[0].beta}, mean over seeds): {_name(own)} is at {trained:.1f} % after "
        f"training, of which masking costs {trained - sent:.1f} points and merging {trained - merged:.1f}"
        + "".join(f"; {text}" for text in others)
        + "."
    )


def shares(runs: dict[str, list[Record]]) -> str:
    """FedPURIN's part of FedAvg's traffic, as sent; "" while one of them is missing."""
    if "fedpurin" not in runs or "fedavg" not in runs:
        return ""
    own, dense = runs["fedpurin"], runs["fedavg"]
    up, down = mean_mib(own, "up") / mean_mib(dense, "up"), mean_mib(dense, "down")
    parts = [split_at_beta(record, "down") for record in own]
    before, after = (
        float(np.mean([part.mean() for part in half])) / down for half in zip(*parts, strict=True)
    )
    return (
        f"CIFAR-10, α = 0.5, T = 60: {_name(own)} sends {100 * up:.0f} % of FedAvg's upload and receives "
        f"{100 * before:.0f} % of its download until β = {own[0].beta}, {100 * after:.0f} % after it."
    )


def traffic_findings(source: Source) -> Paragraphs:
    """Shares of FedAvg's traffic, as sent."""
    said = shares(sixty_rounds(source))
    lines = [said] if said else []
    here, recipe = replace(source, request=Request(scale="quick")), RECIPES["table-communication"]
    column = ("cifar-100", 0.1)
    ours, theirs = (here.records(recipe, recipe.row(name), column) for name in ("fedpurin", "fedavg"))
    if ours and theirs:
        sent, full = traffic(ours)[0], traffic(theirs)[0]
        assert sent is not None
        assert full is not None
        lines.append(
            f"CIFAR-100: {100 * (1 - sent / full):.0f} % less upload than FedAvg's {full:.2f} MiB, but "
            f"{UNUSED:,} of its weights only ever see padding; against a FedAvg that leaves them out "
            f"({used(theirs):.2f} MiB) the saving is {saved_of_used(ours, theirs):.0f} %."
        )
    up_before, up_after, _, _ = source.paper.traffic("cifar-10", 0.1, "fedpurin") or [0.0] * 4
    names = ("cifar-10", "fashion-mnist")
    totals = {name: (source.paper.traffic(name, 0.1, "fedavg") or [1.0])[0] for name in names}
    savings = {name: 100 * (1 - (up_before + up_after) / 2 / total) for name, total in totals.items()}
    lines.append(
        f"The paper's 53.3 % divides its CIFAR-10 uplink, ({up_before} + {up_after}) / 2, by Fashion-MNIST's "
        f"total ({totals['fashion-mnist']}: {savings['fashion-mnist']:.1f} %); by CIFAR-10's own "
        f"({totals['cifar-10']}) it is {savings['cifar-10']:.1f} %."
    )
    return Paragraphs([f"- {line}" for line in lines])
