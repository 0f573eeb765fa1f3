"""Who works with whom: overlap matrix, collaboration graph, group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.report.collaboration import Collaboration, collaboration, collaborator_counts, has_groups
from fedpurin.report.groups import Group, focus
from fedpurin.report.load import Floats, Run, row_means
from fedpurin.report.style import fade
from fedpurin.report.views import (
    Chart,
    Control,
    Missing,
    View,
    category_axis,
    colorbar,
    figure,
    name_colors,
    percent,
    safe,
    small,
)

MAX_EDGES = 300  # more lines than this are a blot
MAX_CLASS_LABELS = 14
MAX_RUNS = 6
SQUARE = 440
MAX_BINNED_EDGES = 80
NUMBERED_NODES = 24


def overlap_figure(found: Collaboration, place: int = -1) -> Any:
    """Overlap of critical masks, or the share of pairs that collaborate where overlap was not recorded."""
    stack = found.overlap_rbb if found.overlap_rbb is not None else found.pairs_rbb
    what = "overlap of critical masks" if found.overlap_rbb is not None else "share of pairs that collaborate"
    off = stack[:, ~np.eye(stack.shape[1], dtype=bool)]
    known = off[~np.isnan(off)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    made = figure(SQUARE + 70, "", "", meta={"square": 70})
    names = [safe(name) for name in (found.nodes if found.binned else _ids(found))]
    made.add_heatmap(
        z=_cells(stack[place]),
        x=names,
        y=names,
        zmin=low,
        zmax=max(high, low + 1e-6),
        autocolorscale=True,
        colorbar=colorbar(".0%"),
        hovertemplate="%{y} and %{x}: %{z:.1%}<extra></extra>",
    )
    name_colors(made, what)
    made.update_xaxes(showgrid=False, **category_axis(names))
    made.update_yaxes(showgrid=False, autorange="reversed", **category_axis(names))
    if found.binned:
        made.update_xaxes(showticklabels=False)
        made.update_yaxes(ticktext=[safe(_short(c)) for c in found.classes], tickvals=names)
        if len(names) > MAX_CLASS_LABELS:
            made.update_yaxes(showticklabels=False, title={"text": "clients, by most frequent class"})
    else:
        made.update_yaxes(title={"text": "client, by most frequent class"})
    made.frames = [
        {"name": str(t), "data": [{"type": "heatmap", "z": _cells(stack[r])}], "traces": [0]}
        for r, t in enumerate(found.rounds)
    ]
    return made


def _cells(matrix: Floats) -> np.ndarray:
    """Without the diagonal, which is 1 by definition and would only stretch the colours."""
    shown = matrix.copy()
    np.fill_diagonal(shown, np.nan)
    return small(shown)


def edge_limit(found: Collaboration) -> int:
    return MAX_BINNED_EDGES if found.binned else MAX_EDGES


def graph_figure(found: Collaboration, color: str, place: int = -1) -> Any:
    """Nodes on a circle by main class; a line where one takes the other as collaborator."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(found.nodes)) / len(found.nodes)
    x, y = np.cos(angle), np.sin(angle)
    made = figure(SQUARE, "", "", showlegend=False, meta={"square": 0})
    limit = edge_limit(found)
    xs, ys = _edges(found.pairs_rbb[place], x, y, limit)
    made.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        hoverinfo="skip",
        name="collaboration",
        line={"color": fade(color, 0.45), "width": 1.4},
    )
    mode = "markers+text" if not found.binned and len(found.nodes) <= NUMBERED_NODES else "markers"
    made.add_scatter(x=small(x), y=small(y), mode=mode, name="clients", **_nodes(found, place, color))
    _label_classes(made, found, angle)
    hidden = {"visible": False, "range": [-1.55, 1.55]}
    made.update_layout(
        xaxis=hidden, yaxis={**hidden, "scaleanchor": "x", "range": [-1.25, 1.25]}, hovermode="closest"
    )
    made.frames = [
        {
            "name": str(t),
            "traces": [0, 1],
            "data": [
                dict(
                    zip(
                        ("type", "x", "y"), ("scatter", *_edges(found.pairs_rbb[r], x, y, limit)), strict=True
                    )
                ),
                {"type": "scatter", "x": small(x), "y": small(y), **_nodes(found, r, color)},
            ],
        }
        for r, t in enumerate(found.rounds)
    ]
    return made


def _ids(found: Collaboration) -> list[str]:
    return [name.removeprefix("client ") for name in found.nodes]


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"


def _edges(pairs: Floats, x: Floats, y: Floats, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Line ends with gaps between; the strongest links when there are too many."""
    both = np.fmax(pairs, pairs.T)
    rows, columns = np.nonzero(np.triu(np.nan_to_num(both), k=1) > 0)
    if len(rows) > limit:
        strength = np.nan_to_num(pairs + pairs.T)[rows, columns]
        best = np.sort(np.argsort(-strength, kind="stable")[:limit])
        rows, columns = rows[best], columns[best]
    gap = np.full(len(rows), np.nan)
    xs = np.stack([x[rows], x[columns], gap], axis=1).ravel()
    ys = np.stack([y[rows], y[columns], gap], axis=1).ravel()
    return small(xs), small(ys)


def _nodes(found: Collaboration, place: int, color: str) -> dict[str, Any]:
    pairs = np.nan_to_num(found.pairs_rbb[place])
    strength = pairs.sum(axis=1) if not found.binned else row_means(found.pairs_rbb[place])
    strength = np.nan_to_num(strength)
    top = max(float(strength.max()), 1e-9)
    amount = [percent(s) + " of pairs" if found.binned else f"{s:.0f} collaborators" for s in strength]
    labels = [f"mostly {c}" if c and not found.binned else "" for c in found.classes]
    text = [
        safe(f"{n}: {a}" + (f", {c}" if c else ""))
        for n, a, c in zip(found.nodes, amount, labels, strict=True)
    ]
    smallest = 17 if len(found.nodes) <= NUMBERED_NODES else 8
    return {
        "text": _ids(found),
        "textfont": {"color": "#ffffff", "size": 11},
        "customdata": text,
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"size": small(smallest + 12 * strength / top), "color": color, "opacity": 1},
    }


def _label_classes(made: Any, found: Collaboration, angle: Floats) -> None:
    """The class name outside the arc of its clients, while there is room."""
    named = [name for name in dict.fromkeys(found.classes) if name]
    if not named or len(named) > MAX_CLASS_LABELS:
        return
    for name in named:
        middle = float(np.mean([angle[i] for i, c in enumerate(found.classes) if c == name]))
        side = "center" if abs(np.cos(middle)) < 0.25 else "left" if np.cos(middle) > 0 else "right"
        made.add_annotation(
            x=1.14 * np.cos(middle),
            y=1.14 * np.sin(middle),
            text=safe(_short(name)),
            showarrow=False,
            xanchor=side,
        )


def overlap_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Who works with whom"
    able = [(group, run) for group in groups for run in group.runs if has_groups(run)]
    able = [(group, run) for group, run in able if run.clients > 1]
    if not able:
        return Missing(title, "none of these methods forms groups of clients (FedCAC and FedPURIN do)")
    centre = focus([group for group, _ in able])
    able.sort(key=lambda pair: pair[0] is not centre)
    views, names, notes = {}, {}, []
    for i, (group, run) in enumerate(able[:MAX_RUNS]):
        found = collaboration(run)
        assert found is not None  # has_groups and more than one client
        figures = [graph_figure(found, group.color), overlap_figure(found)]
        views[(f"r{i}",)] = View(figures, overlap_sentence(group, run))
        names[f"r{i}"] = f"{group.label}, seed {run.seed}"
        notes += _small_print(run, found)
    if len(able) > MAX_RUNS:
        notes.append(f"{MAX_RUNS} of {len(able)} runs with groups are shown.")
    control = Control("run", "Run", names)
    return Chart("overlap", title, views, [control], " ".join(dict.fromkeys(notes)), slider="Round")


def _small_print(run: Run, found: Collaboration) -> list[str]:
    notes = [
        "A line joins two clients when at least one takes the other as collaborator; bigger dots have more.",
        "Rows and columns of the matrix have one order; an overlap is negative where masks differ a lot.",
    ]
    if found.binned:
        notes = [
            f"{run.clients} clients are binned by their most frequent class; a line: some pairs collaborate."
        ]
    if found.overlap_rbb is None:
        notes.append("Overlap is recorded for up to 64 participants only, so the matrix shows collaboration.")
    if found.sampled:
        notes.append(f"The slider shows {len(found.rounds)} of {found.total_rounds} rounds.")
    links = (
        np.triu(np.nan_to_num(np.fmax(found.pairs_rbb, found.pairs_rbb.transpose(0, 2, 1))), k=1) > 0
    ).sum(axis=(1, 2))
    if links.max() > edge_limit(found):
        notes.append(f"At most {edge_limit(found)} lines are drawn, the strongest.")
    return notes


def overlap_sentence(group: Group, run: Run) -> str:
    counts = collaborator_counts(run)
    known = np.flatnonzero(~np.isnan(counts))
    if not len(known):
        return "No groups were recorded."
    text = f"{group.label} starts with {counts[known[0]]:.1f} collaborators per client"
    alone = [t for t in known if (counts[t:][~np.isnan(counts[t:])] == 0).all()]
    if alone:
        return (
            text + f" and has none from round {alone[0] + 1} on; move the slider to see the groups thin out."
        )
    return text + f" and ends with {counts[known[-1]]:.1f}; move the slider to see the groups change."


def groups_figure(groups: Sequence[Group]) -> Any:
    made = figure(300, "round", "collaborators per client")
    for group in groups:
        table = np.full((group.rounds, len(group.runs)), np.nan)
        for column, run in enumerate(group.runs):
            table[: run.rounds, column] = collaborator_counts(run)
        made.add_scatter(
            x=np.arange(1, group.rounds + 1, dtype=np.int32),
            y=small(row_means(table)),
            name=safe(group.label),
            mode="lines+markers" if group.rounds <= 30 else "lines",
            line={"color": group.color, "dash": group.dash, "width": 2.4},
            hovertemplate="round %{x}: %{y:.2f} collaborators",
        )
    made.update_yaxes(rangemode="tozero")
    made.update_xaxes(tickformat="d")
    made.update_layout(showlegend=True)
    return made


def groups_chart(groups: Sequence[Group]) -> Chart | None:
    able = [group for group in groups if any(has_groups(run) and run.clients > 1 for run in group.runs)]
    if not able:
        return None  # the chart of the graph already says why
    counts = {group.label: collaborator_counts(group.runs[0]) for group in able}
    most = {name: int(np.nanargmax(values)) + 1 for name, values in counts.items()}
    told = " and ".join(f"in round {t} for {name}" for name, t in most.items())
    if len(set(most.values())) == 1:
        told = f"in round {next(iter(most.values()))}"
    sentence = f"Groups are largest {told}; the threshold rises with every round, until nobody is left."
    return Chart("groups", "Size of the groups", {(): View([groups_figure(able)], sentence)})
