"""Who works with whom: the collaboration graph and the overlap matrix, over rounds.

Up to 64 clients are nodes themselves. More are binned by their most frequent class, or into equal
parts of that order when there are too many classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.chart import Chart, Control, Definition, Missing, View
from fedpurin.report.marks import Axis, Dots, Heat, Line, Mark, Panel, Picture, Text
from fedpurin.report.measure import percent
from fedpurin.report.run_groups import Group, Groups, focus_first
from fedpurin.report.series import client_order, evenly_spaced
from fedpurin.runs.run import Floats, Run, row_means

MAX_RUNS = 6
MAX_NODES = 64
MAX_BINS = 40
MAX_ROUNDS = 60
MAX_CELLS = 160_000  # matrix entries over all rounds of one run
MAX_EDGES, MAX_BINNED_EDGES = 300, 80  # more lines than this are a blot
MAX_CLASS_LABELS = 14
NUMBERED_NODES = 24
SQUARE = 440
SIDES = 2.15  # half the width of the graph, in radii: room for a class name on a phone
MAX_LETTERS = 10


def build(groups: Groups) -> Chart | Missing:
    able = [(group, run) for group in focus_first(groups) for run in group.runs if has_groups(run)]
    if not able:
        return Missing("none of these methods forms groups of clients (FedCAC and FedPURIN do)")
    shown = {f"r{i}": (*pair, collaboration(pair[1])) for i, pair in enumerate(able[:MAX_RUNS])}

    def view(run: str) -> View:
        group, chosen, links = shown[run]
        return View([_graph(group, links), _matrix(group, links)], _sentence(group, chosen))

    notes = [note for _, run, links in shown.values() for note in _small_print(run, links)]
    if len(able) > MAX_RUNS:
        notes.append(f"{MAX_RUNS} of {len(able)} runs with groups are shown.")
    names = {key: f"{group.label}, seed {run.seed}" for key, (group, run, _) in shown.items()}
    return Chart(view, [Control("run", "Run", names)], " ".join(dict.fromkeys(notes)), slider="Round")


@dataclass(frozen=True)
class Collaboration:
    nodes: list[str]  # B names, in the order of the circle and of the matrix
    classes: list[str]  # the most frequent class of each node; "" when unknown
    binned: bool
    rounds: list[int]
    pairs_rbb: Floats  # [R, B, B]: share of ordered pairs in which j is among i's collaborators
    overlap_rbb: Floats | None  # [R, B, B]; None when it was not recorded
    total_rounds: int


def has_groups(run: Run) -> bool:
    return run.clients > 1 and any(line.get("collaborators") is not None for line in run.lines)


def collaboration(run: Run) -> Collaboration:
    """Of a run that `has_groups`."""
    with_groups = [line["round"] for line in run.lines if line.get("collaborators") is not None]
    node_n, nodes, classes, binned = _assign(run)
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


def _assign(run: Run) -> tuple[NDArray[np.int64], list[str], list[str], bool]:
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


def _matrix(group: Group, links: Collaboration) -> Picture:
    """Overlap of critical masks, or the share of pairs that collaborate where overlap was not recorded."""
    stack = links.pairs_rbb if links.overlap_rbb is None else links.overlap_rbb
    meaning = "share of pairs that collaborate" if links.overlap_rbb is None else "overlap of critical masks"
    off = stack[:, ~np.eye(stack.shape[1], dtype=bool)]
    low, high = (0.0, 1.0) if np.isnan(off).all() else (float(np.nanmin(off)), float(np.nanmax(off)))
    frames: dict[int, list[Mark]] = {}
    for t, matrix in zip(links.rounds, stack, strict=True):
        cells = matrix.copy()
        np.fill_diagonal(cells, np.nan)  # 1 by definition; it would only stretch the colours
        hover, top = "%{y} and %{x}: %{z:.1%}", max(high, low + 1e-6)
        frames[t] = [Heat(cells, meaning, low=low, high=top, share=True, hover=hover)]
    nodes = [_short(name) for name in links.classes] if links.binned else _ids(links)
    roomy = not links.binned or len(nodes) <= MAX_CLASS_LABELS
    title = "clients, by most frequent class" if links.binned else "client, by most frequent class"
    x = Axis(title, names=nodes, named=not links.binned, grid=False)
    y = Axis("the same order", names=nodes, named=roomy, reversed=True, grid=False)
    panel = Panel(x, y, frames[links.rounds[0]])
    return Picture(f"{group.label}: {meaning}", SQUARE + 70, [panel], square=True, frames=frames)


def _graph(group: Group, links: Collaboration) -> Picture:
    """Nodes on a circle by main class; a line where one takes the other as collaborator."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(links.nodes)) / len(links.nodes)
    frames: dict[int, list[Mark]] = {}
    for t, pairs in zip(links.rounds, links.pairs_rbb, strict=True):
        x, y = _edges(pairs, np.cos(angle), np.sin(angle), _edge_limit(links))
        edges = Line(x, y, "collaboration", group.color, width=1.4, opacity=0.45, in_legend=False)
        frames[t] = [edges, _nodes(links, pairs, angle, group.color)]
    marks = [*frames[links.rounds[0]], *_class_labels(links, angle)]
    hidden = [Axis(range=(-reach, reach), visible=False, grid=False) for reach in (SIDES, 1.25)]
    panel = Panel(hidden[0], hidden[1], marks)
    return Picture(f"{group.label}: who works with whom", SQUARE, [panel], square=True, frames=frames)


def _ids(links: Collaboration) -> list[str]:
    return [name.removeprefix("client ") for name in links.nodes]


def _short(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else name[: MAX_LETTERS - 1] + "…"


def _edge_limit(links: Collaboration) -> int:
    return MAX_BINNED_EDGES if links.binned else MAX_EDGES


def _edges(pairs: Floats, x: Floats, y: Floats, limit: int) -> tuple[Floats, Floats]:
    """Line ends with gaps between; the strongest links when there are too many."""
    both = np.fmax(pairs, pairs.T)
    rows, columns = np.nonzero(np.triu(np.nan_to_num(both), k=1) > 0)
    if len(rows) > limit:
        strength = np.nan_to_num(pairs + pairs.T)[rows, columns]
        best = np.sort(np.argsort(-strength, kind="stable")[:limit])
        rows, columns = rows[best], columns[best]
    gap = np.full(len(rows), np.nan)
    ends = [np.stack([side[rows], side[columns], gap], axis=1).ravel() for side in (x, y)]
    return ends[0], ends[1]


def _nodes(links: Collaboration, pairs: Floats, angle: Floats, color: str) -> Dots:
    strength = np.nan_to_num(row_means(pairs) if links.binned else np.nansum(pairs, axis=1))
    texts = []
    for node, name, amount in zip(links.nodes, links.classes, strength, strict=True):
        told = f"{percent(amount)} of pairs" if links.binned else f"{amount:.0f} collaborators"
        texts.append(f"{node}: {told}" + (f", mostly {name}" if name and not links.binned else ""))
    few = not links.binned and len(links.nodes) <= NUMBERED_NODES
    sizes = (17 if few else 8) + 12 * strength / max(float(strength.max()), 1e-9)
    inside = _ids(links) if few else None
    dots = Dots(np.cos(angle), np.sin(angle), "clients", color, size=sizes, texts=inside)
    return replace(dots, custom=texts, hover="%{customdata}")


def _class_labels(links: Collaboration, angle: Floats) -> list[Mark]:
    """The class name outside the arc of its clients, while there is room."""
    named = [name for name in dict.fromkeys(links.classes) if name]
    if len(named) > MAX_CLASS_LABELS:
        return []
    marks: list[Mark] = []
    for name in named:
        middle = float(np.mean([angle[i] for i, c in enumerate(links.classes) if c == name]))
        x, y = float(np.cos(middle)), float(np.sin(middle))
        side = "center" if abs(x) < 0.25 else "left" if x > 0 else "right"
        marks.append(Text(1.14 * x, 1.14 * y, _short(name), side))
    return marks


def _small_print(run: Run, links: Collaboration) -> list[str]:
    notes = [
        "A line joins two clients when at least one takes the other as collaborator; bigger dots have more.",
        "Rows and columns of the matrix have one order; an overlap is negative where masks differ a lot.",
    ]
    if links.binned:
        binned = f"{run.clients} clients are binned by their most frequent class"
        notes = [f"{binned}; a line: some pairs collaborate."]
    if links.overlap_rbb is None:
        notes.append("Overlap is recorded for up to 64 participants only, so the matrix shows collaboration.")
    if len(links.rounds) < links.total_rounds:
        notes.append(f"The slider shows {len(links.rounds)} of {links.total_rounds} rounds.")
    both = np.nan_to_num(np.fmax(links.pairs_rbb, links.pairs_rbb.transpose(0, 2, 1)))
    if (np.triu(both, k=1) > 0).sum(axis=(1, 2)).max() > _edge_limit(links):
        notes.append(f"At most {_edge_limit(links)} lines are drawn, the strongest.")
    return notes


def _sentence(group: Group, run: Run) -> str:
    counts = collaborator_counts(run)
    recorded = np.flatnonzero(~np.isnan(counts))
    if not len(recorded):
        return "No groups were recorded."
    text = f"{group.label} starts with {counts[recorded[0]]:.1f} collaborators per client"
    alone = [t for t in recorded if (counts[t:][~np.isnan(counts[t:])] == 0).all()]
    if alone:
        text += f" and has none from round {alone[0] + 1} on"
        return text + "; move the slider to see the groups thin out."
    return text + f" and ends with {counts[recorded[-1]]:.1f}; move the slider to see the groups change."


CHART = Definition("overlap", "Who works with whom", 70, build, pictures=("graph", "overlap"))
