"""Who works with whom, made small enough to draw: nodes, rounds and matrices for the slider.

Up to 64 clients are nodes themselves. More are binned by their most frequent class, or into equal
parts of that order when there are too many classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.series import client_order, evenly_spaced
from fedpurin.runs.run import Floats, Run

MAX_NODES = 64
MAX_BINS = 40
MAX_ROUNDS = 60
MAX_CELLS = 160_000  # matrix entries over all rounds of one run


@dataclass(frozen=True)
class Collaboration:
    nodes: list[str]  # B names, in the order of the circle and of the matrix
    classes: list[str]  # the most frequent class of each node; "" when unknown
    binned: bool
    rounds: list[int]
    pairs_rbb: Floats  # [R, B, B]: share of ordered pairs in which j is among i's collaborators
    overlap_rbb: Floats | None  # [R, B, B]; None when it was not recorded
    total_rounds: int

    @property
    def sampled(self) -> bool:
        return len(self.rounds) < self.total_rounds


def has_groups(run: Run) -> bool:
    return run.clients > 1 and any(line.get("collaborators") is not None for line in run.lines)


def collaboration(run: Run) -> Collaboration:
    """Of a run that `has_groups`."""
    with_groups = [line["round"] for line in run.lines if line.get("collaborators") is not None]
    node_n, nodes, classes, binned = _nodes(run)
    limit = max(2, min(MAX_ROUNDS, MAX_CELLS // len(nodes) ** 2))
    rounds = evenly_spaced(with_groups, limit)
    pairs = np.stack([_pairs(run, t, node_n, len(nodes)) for t in rounds])
    overlap = None
    if not binned and any(run.overlap(t) is not None for t in rounds):
        overlap = np.stack([_overlap(run, t, node_n) for t in rounds])
    return Collaboration(nodes, classes, binned, rounds, pairs, overlap, len(with_groups))


def collaborator_counts(run: Run) -> Floats:
    """[T]: mean number of collaborators per participant; NaN where the round has no groups."""
    counts = np.full(run.rounds, np.nan)
    for line in run.lines:
        groups = line.get("collaborators")
        if groups:
            counts[line["round"] - 1] = np.mean([len(group) for group in groups])
    return counts


def _nodes(run: Run) -> tuple[NDArray[np.int64], list[str], list[str], bool]:
    """Node of each client, node names, node classes, and whether clients were binned."""
    order = client_order(run)
    has_classes = run.train_counts.shape[1] > 0
    main_n = run.train_counts.argmax(axis=1) if has_classes else np.zeros(run.clients, dtype=np.int64)

    def name(k: int) -> str:
        return run.classes[k] if has_classes else ""

    node_n = np.empty(run.clients, dtype=np.int64)
    if run.clients <= MAX_NODES:
        node_n[order] = np.arange(run.clients)
        return node_n, [f"client {i}" for i in order], [name(main_n[i]) for i in order], False
    present = np.unique(main_n)
    if has_classes and 2 <= len(present) <= MAX_BINS:
        node_n[:] = np.searchsorted(present, main_n)
        sizes = np.bincount(node_n)
        nodes = [f"{name(k)} ({size} clients)" for k, size in zip(present, sizes, strict=True)]
        return node_n, nodes, [name(k) for k in present], True
    nodes, classes = [], []
    for b, part in enumerate(np.array_split(order, MAX_BINS)):
        node_n[part] = b
        first, last = name(main_n[part[0]]), name(main_n[part[-1]])
        classes.append(first if first == last else f"{first} – {last}")
        nodes.append(f"{classes[-1] or f'part {b + 1}'} ({len(part)} clients)")
    return node_n, nodes, classes, True


def _pairs(run: Run, t: int, node_n: NDArray[np.int64], size: int) -> Floats:
    groups = run.collaborators(t) or {}
    here = node_n[list(groups)] if groups else np.zeros(0, dtype=np.int64)
    present = np.bincount(here, minlength=size).astype(float)
    possible = np.outer(present, present) - np.diag(present)
    links = np.zeros((size, size))
    for client, others in groups.items():
        np.add.at(links[node_n[client]], node_n[others], 1.0)
    return np.where(possible > 0, links / np.maximum(possible, 1), np.nan)


def _overlap(run: Run, t: int, node_n: NDArray[np.int64]) -> Floats:
    matrix = np.full((run.clients, run.clients), np.nan)
    recorded = run.overlap(t)
    if recorded is not None:
        ids, values = recorded
        place = node_n[ids]
        matrix[np.ix_(place, place)] = values
    return matrix
