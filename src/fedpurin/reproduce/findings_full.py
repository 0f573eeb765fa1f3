"""Sentences and pictures about runs of the paper's full length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpurin.reproduce.accuracy_tables import MOMENTS
from fedpurin.reproduce.findings import CIFAR, sixty_rounds
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source, gap_text, seed_numbers
from fedpurin.reproduce.stats import paired
from fedpurin.reproduce.summary import FULL, full_length
from fedpurin.runs.same_setting import method_label

FIGURES = {
    "rounds": "accuracy over 200 rounds, CIFAR-10, alpha 0.1",
    "bytes": "MiB over 200 rounds, CIFAR-10, alpha 0.1",
}
ASTRAY = 0.3  # a fall of a client's accuracy, from the median of the rounds before, that is worth a word
BEFORE = 10  # rounds
FULL_LENGTH = Request(scale="paper")


def full_findings(source: Source) -> Paragraphs:
    records = full_length(source)
    if not records:
        return Paragraphs(["- nothing measured yet"])
    finished = [record for record in records if record.complete]
    lines = [_accuracy(source, finished)] if finished else []
    lines += [*_rivals(source, records), *(said for record in finished if (said := _astray(record)))]
    column = f"{FULL[0]}-a{FULL[1]:g}"
    lines += [f"![{text}](figures/{kind}-paper-{column}.png)" for kind, text in FIGURES.items()]
    return Paragraphs([f"- {line}" for line in lines])


def _accuracy(source: Source, records: Sequence[Record]) -> str:
    best = float(np.mean([record.best() for record in records]))
    printed = source.paper.number("accuracy", "fedpurin", *FULL) or 0.0
    spread = source.paper.number("deviation", "fedpurin", *FULL)
    numbers = seed_numbers(record.config.run.seed for record in records)
    return (
        f"FedPURIN's best round, as uploaded: {best:.2f} % ({numbers}), {best - printed:+.2f} points from "
        f"the paper's {printed:.2f} over three seeds, whose standard deviation is {spread}."
    )


def _rivals(source: Source, ours: list[Record]) -> list[str]:
    here, recipe, lines = replace(source, request=FULL_LENGTH), RECIPES["table-accuracy"], []
    for row in recipe.rows:
        theirs = here.records(recipe, row, FULL) if row.id != "fedpurin" else []
        gaps = [(words, paired(ours, theirs, moment)) for moment, words in MOMENTS.items()]
        if gaps[0][1] is not None:
            said = ", ".join(f"{words} {gap_text(gap)}" for words, gap in gaps)
            rounds = gaps[0][1].rounds
            lines.append(f"FedPURIN − {row.label}, the last ten rounds up to round {rounds}: {said}.")
    return lines


def _astray(record: Record) -> str:
    """The deepest fall of one client after beta, and what it does to everybody's downloads."""
    clients_tn, beta = record.clients("trained"), record.beta or 0
    start = beta + BEFORE
    falls = [np.median(clients_tn[t - BEFORE : t], axis=0) - clients_tn[t] for t in range(start, record.done)]
    if not falls or np.max(falls) < ASTRAY:
        return ""
    place, client = np.unravel_index(int(np.argmax(falls)), np.shape(falls))
    t = start + int(place)
    before, then = np.median(clients_tn[t - BEFORE : t, client]), clients_tn[t, client]
    down = record.mib("down")
    grown = float(down[t : t + BEFORE].max() / np.median(down[t - BEFORE : t]))
    return (
        f"Seed {record.config.run.seed}, round {t + 1}: client {client} falls from {100 * before:.0f} to "
        f"{100 * then:.0f} % after training; downloads grow to {grown:.1f} times what they were."
    )


def longer(source: Source) -> Paragraphs:
    """What became of the methods of the table of 60 rounds in 200, where they were run so long."""
    here, recipe, lines = replace(source, request=FULL_LENGTH), RECIPES["table-accuracy"], []
    short = sixty_rounds(source)
    for row in recipe.rows:
        long = [r for r in here.records(recipe, row, CIFAR) if r.complete]
        before = short.get(row.method, [])
        if not long or not before:
            continue
        printed = source.paper.number("accuracy", row.id, *CIFAR)
        best = [float(np.mean([r.best() for r in records])) for records in (long, before)]
        rounds = ", ".join(str(int(np.nanargmax(r.curve())) + 1) for r in long)
        numbers = [seed_numbers(r.config.run.seed for r in records) for records in (long, before)]
        lines.append(
            f"- {method_label(row.method)}'s best round as uploaded, over {long[0].done} rounds: "
            f"{best[0]:.2f} % in round {rounds} ({numbers[0]}); over 60: {best[1]:.2f} % ({numbers[1]}); "
            f"the paper: {printed:.2f} %."
        )
    return Paragraphs(lines or ["- None of the methods was run for 200 rounds in this setting yet."])
