"""Clients and their collaboration in matplotlib: class table, overlap matrix, graph on a circle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.errors import RunError
from fedpurin.report.collaboration import Collaboration, collaboration, has_groups
from fedpurin.report.groups import Group, focus
from fedpurin.report.series import client_order
from fedpurin.report.style import SEQUENTIAL

FEW_CLIENTS = 32


def image(
    axes: Any, values: Any, *, extent: Any = None, low: float | None = None, high: float | None = None
) -> Any:
    """A heat map in the house colours, without a grid on top."""
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list("fedpurin", SEQUENTIAL["light"])
    axes.grid(visible=False)
    return axes.imshow(
        values, aspect="auto", cmap=colors, vmin=low, vmax=high, extent=extent, interpolation="nearest"
    )


def draw_classes(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    run = focus(groups).runs[0]
    if run.train_counts.sum() == 0:
        raise RunError("there is no figure 'classes' of these runs: clients.json does not list the classes")
    order = client_order(run)
    made.set_size_inches(7.2, max(2.8, min(1.6 + 0.24 * len(run.classes), 9.0)))
    axes = made.subplots()
    shown = image(axes, run.train_counts[order].T, low=0)
    if len(run.classes) <= 40:
        axes.set_yticks(range(len(run.classes)), run.classes)
    else:
        axes.set_ylabel("Class")
    if run.clients <= FEW_CLIENTS:
        axes.set_xticks(range(run.clients), [str(i) for i in order], fontsize=9)
    axes.set(xlabel="Client, ordered by its most frequent class", title="Who holds what")
    made.colorbar(shown, ax=axes, pad=0.02, label="Training samples")


def _found(groups: Sequence[Group], chosen: dict[str, Any], name: str) -> tuple[Group, Collaboration, int]:
    able = [group for group in groups if any(has_groups(run) and run.clients > 1 for run in group.runs)]
    if not able:
        raise RunError(
            f"there is no figure {name!r} of these runs: none of these methods forms groups of clients"
        )
    group = focus(able)
    found = collaboration(group.runs[0])
    assert found is not None  # a run with groups
    asked = chosen["round"] if chosen["round"] is not None else found.rounds[0]
    place = int(np.abs(np.array(found.rounds) - int(asked)).argmin())
    return group, found, place


def draw_overlap(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    group, found, place = _found(groups, chosen, "overlap")
    stack = found.overlap_rbb if found.overlap_rbb is not None else found.pairs_rbb
    what = "Overlap of critical masks" if found.overlap_rbb is not None else "Share of pairs that collaborate"
    values = stack[place].copy()
    np.fill_diagonal(values, np.nan)
    made.set_size_inches(5.6, 4.8)
    axes = made.subplots()
    shown = image(axes, values)
    _label_nodes(axes, found)
    axes.set_title(f"{group.label}, round {found.rounds[place]}")
    made.colorbar(shown, ax=axes, pad=0.02, label=what, format=lambda x, _: f"{100 * x:.0f} %")


def _label_nodes(axes: Any, found: Collaboration) -> None:
    if found.binned:
        axes.set(
            xlabel="Clients, by most frequent class",
            ylabel="The same, in the same order",
            xticks=[],
            yticks=[],
        )
        return
    axes.set(xlabel="Client, by most frequent class", ylabel="Client")
    names = [name.removeprefix("client ") for name in found.nodes]
    step = 1 if len(names) <= FEW_CLIENTS else len(names) // 12
    places = range(0, len(names), step)
    axes.set_xticks(places, [names[i] for i in places], fontsize=8)
    axes.set_yticks(places, [names[i] for i in places], fontsize=8)


def draw_graph(made: Any, groups: Sequence[Group], chosen: dict[str, Any]) -> None:
    group, found, place = _found(groups, chosen, "graph")
    made.set_size_inches(5.2, 5.0)
    axes = made.subplots()
    axes.set_axis_off()
    axes.set_aspect("equal")
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(found.nodes)) / len(found.nodes)
    x, y = np.cos(angle), np.sin(angle)
    pairs = np.nan_to_num(found.pairs_rbb[place])
    for i, j in zip(*np.nonzero(np.triu(np.maximum(pairs, pairs.T), k=1)), strict=True):
        strength = 0.2 + 0.4 * max(pairs[i, j], pairs[j, i])
        axes.plot(x[[i, j]], y[[i, j]], color=group.color, alpha=strength, lw=1, zorder=1)
    size = pairs.sum(axis=1) / max(float(pairs.sum(axis=1).max()), 1e-9)
    few = not found.binned and len(found.nodes) <= FEW_CLIENTS
    axes.scatter(x, y, s=(150 if few else 30) + 160 * size, color=group.color, zorder=2, lw=0)
    if few:
        for name, a, b in zip(found.nodes, x, y, strict=True):
            axes.text(
                a,
                b,
                name.removeprefix("client "),
                color="white",
                fontsize=8,
                ha="center",
                va="center",
                zorder=3,
            )
    _name_arcs(axes, found, angle)
    axes.set(xlim=(-1.45, 1.45), ylim=(-1.3, 1.3), title=f"{group.label}, round {found.rounds[place]}")


def _name_arcs(axes: Any, found: Collaboration, angle: Any) -> None:
    names = [name for name in dict.fromkeys(found.classes) if name]
    if len(names) > 14:
        return
    for name in names:
        middle = float(np.mean([angle[i] for i, c in enumerate(found.classes) if c == name]))
        side = "center" if abs(np.cos(middle)) < 0.25 else "left" if np.cos(middle) > 0 else "right"
        axes.text(
            1.14 * np.cos(middle),
            1.14 * np.sin(middle),
            name,
            ha=side,
            va="center",
            fontsize=10,
            color="#444444",
        )
