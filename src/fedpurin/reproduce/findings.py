"""Sentences of docs/reproduction.md whose numbers come from the store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpurin.reproduce.accuracy_tables import mean_mib
from fedpurin.reproduce.communication import split_at_beta, traffic
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source
from fedpurin.runs.same_setting import method_label
from fedpurin.runs.traffic import running_mean

CIFAR = ("cifar-10", 0.5)
PASSED = 69  # percent
# ResNet-10's fourth stage: a 3 x 3 kernel over a 1 x 1 map uses one of nine weights, with stride 2 four.
UNUSED = 256 * 512 * 5 + 512 * 512 * 8


def sixty_rounds(source: Source) -> dict[str, Record]:
    """CIFAR-10, alpha 0.5, seed 1, T = 60, by method."""
    here = replace(source, request=Request(scale="paper", rounds=60, seeds=(1,)))
    recipe = RECIPES["table-accuracy"]
    by_method = {row.method: here.records(recipe, row, CIFAR) for row in recipe.rows}
    return {name: records[0] for name, records in by_method.items() if records and records[0].complete}


def curve_findings(source: Source) -> Paragraphs:
    """What the curves over 60 rounds show."""
    runs = sixty_rounds(source)
    if "fedpurin" not in runs:
        return Paragraphs(["- nothing measured yet"])
    own = runs["fedpurin"]
    lines = [_above(own, other) for name, other in runs.items() if name != "fedpurin"]
    passed = ", ".join(f"{_name(record)} {_passes(record)}" for record in runs.values())
    lines.append(f"{PASSED} % after training (mean of three rounds) is passed by {passed}.")
    lines.append(_early(own))
    return Paragraphs([f"- {line}" for line in lines])


def _name(record: Record) -> str:
    return method_label(record.config.run.method)


def _above(own: Record, other: Record) -> str:
    """From which round on the first is above for good, as uploaded."""
    above = own.curve() > other.curve()
    below = np.flatnonzero(~above)
    since = int(below[-1]) + 2 if len(below) else 1
    if since > own.done:
        return f"{_name(own)} does not stay above {_name(other)} (as uploaded)."
    count = f"in {int(above.sum())} of {own.done} rounds, from {since} on in all"
    return f"{_name(own)} is above {_name(other)} (as uploaded) {count}."


def _passes(record: Record) -> str:
    reached = np.flatnonzero(100 * running_mean(record.curve("trained")) >= PASSED)
    return f"in round {int(reached[0]) + 1}" if len(reached) else "never"


def _early(record: Record) -> str:
    """Why the first rounds are weak: what masking costs, and what merging costs."""
    until = slice(0, record.beta)
    trained, sent, merged = (record.mean(moment, until) for moment in ("trained", "upload", "merged"))
    return (
        f"Early rounds of {_name(record)} (1 to β = {record.beta}): masking costs {trained - sent:.1f} "
        f"points (after training {trained:.1f} %, as uploaded {sent:.1f} %), merging {trained - merged:.1f} "
        f"(after merging {merged:.1f} %)."
    )


def shares(runs: dict[str, Record]) -> str:
    """FedPURIN's part of FedAvg's traffic, as sent; "" while one of them is missing."""
    if "fedpurin" not in runs or "fedavg" not in runs:
        return ""
    own, dense = runs["fedpurin"], runs["fedavg"]
    up = mean_mib([own], "up") / mean_mib([dense], "up")
    before, after = (part.mean() / dense.mib("down").mean() for part in split_at_beta(own, "down"))
    return (
        f"CIFAR-10, α = 0.5, T = 60: {_name(own)} sends {100 * up:.0f} % of FedAvg's upload and receives "
        f"{100 * before:.0f} % of its download until β = {own.beta}, {100 * after:.0f} % after it."
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
        used = full - 4 * UNUSED / 2**20
        lines.append(
            f"CIFAR-100: {100 * (1 - sent / full):.0f} % less upload than FedAvg's {full:.2f} MiB, but "
            f"{UNUSED:,} of its weights only ever see padding; against a FedAvg that leaves them out "
            f"({used:.2f} MiB) the saving is {100 * (1 - sent / used):.0f} %."
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
