"""Who holds what: training samples by client and class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpurin.report.groups import Group
from fedpurin.report.load import Run
from fedpurin.report.series import client_order
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
)

MAX_SPLITS = 6


def classes_figure(run: Run) -> Any:
    """Training samples of each client (columns) by class (rows), clients with one main class together."""
    order = client_order(run)
    counts = run.train_counts[order].T
    shown = [k for k in range(len(run.classes)) if counts[k].any()]
    made = figure(150 + max(220, min(22 * len(shown), 620)), "", "")
    names = [str(i) for i in order]
    made.add_heatmap(
        z=_compact(counts[shown]),
        x=names,
        y=[safe(run.classes[k]) for k in shown],
        autocolorscale=True,
        zmin=0,
        xgap=1 if run.clients <= 100 else 0,
        ygap=1 if len(shown) <= 40 else 0,
        colorbar=colorbar(),
        hovertemplate="client %{x}: %{z} samples of %{y}<extra></extra>",
    )
    name_colors(made, "training samples, a column per client")
    made.update_xaxes(showgrid=False, **category_axis(names))
    made.update_yaxes(autorange="reversed", showgrid=False, type="category")
    return made


def _compact(counts: np.ndarray) -> np.ndarray:
    """Whole numbers in the narrowest type that holds them."""
    return counts.astype(np.int16 if counts.max(initial=0) < 2**15 else np.int32)


def classes_chart(groups: Sequence[Group]) -> Chart | Missing:
    title = "Who holds what"
    splits: dict[Any, Run] = {}
    for run in (run for group in groups for run in group.runs):
        if run.train_counts.sum() > 0:
            splits.setdefault(run.split or run.path, run)
    if not splits:
        return Missing(title, "clients.json does not say which classes the clients hold")
    shown = list(splits.values())[:MAX_SPLITS]
    views = {(f"s{i}",): View([classes_figure(run)], classes_sentence(run)) for i, run in enumerate(shown)}
    names = {f"s{i}": _split_name(run) for i, run in enumerate(shown)}
    note = "Clients are ordered by their most frequent class."
    if len(splits) > MAX_SPLITS:
        note += f" Of {len(splits)} different splits the first {MAX_SPLITS} are shown."
    return Chart("classes", title, views, [Control("split", "Split", names)], note)


def _split_name(run: Run) -> str:
    alpha = run.setting("data", "alpha")
    return f"seed {run.seed}" + (f", alpha {alpha}" if alpha is not None else "")


def classes_sentence(run: Run) -> str:
    held = (run.train_counts > 0).sum(axis=1)
    main = run.train_counts.max(axis=1) / np.maximum(run.train_counts.sum(axis=1), 1)
    return (
        f"A client holds {int(np.median(held))} of {len(run.classes)} classes (median); its most frequent "
        f"class makes up {percent(float(np.median(main)), 0)} of its data."
    )
