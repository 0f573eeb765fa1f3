"""Who holds what: training samples by client and class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpurin.report.chart import Chart, Control, Definition, Missing, View
from fedpurin.report.marks import Axis, Heat, Panel, Picture
from fedpurin.report.measure import percent
from fedpurin.report.run_groups import Groups, focus_first
from fedpurin.report.series import client_order
from fedpurin.runs.run import Run
from fedpurin.runs.same_setting import setting_of

MAX_SPLITS = 6


def build(groups: Groups) -> Chart | Missing:
    splits: dict[str | Path, Run] = {}
    for run in (run for group in focus_first(groups) for run in group.runs):
        if run.train_counts.sum() > 0:
            splits.setdefault(run.split or run.path, run)
    if not splits:
        return Missing("clients.json does not say which classes the clients hold")
    shown = {f"s{i}": run for i, run in enumerate(list(splits.values())[:MAX_SPLITS])}
    names = {key: _split_name(run) for key, run in shown.items()}
    note = "Clients are ordered by their most frequent class."
    if len(splits) > MAX_SPLITS:
        note += f" Of {len(splits)} different splits the first {MAX_SPLITS} are shown."

    def view(split: str) -> View:
        return View([_picture(shown[split])], _sentence(shown[split]))

    return Chart(view, [Control("split", "Split", names)], note)


def _split_name(run: Run) -> str:
    alpha = setting_of(run.config).get("data.alpha")
    return f"seed {run.seed}" + (f", alpha {alpha}" if alpha is not None else "")


def _picture(run: Run) -> Picture:
    """A column per client, clients with one main class together; a row per class that somebody holds."""
    order = client_order(run)
    counts = run.train_counts[order].T
    held = np.flatnonzero(counts.any(axis=1))
    gaps = (1 if run.clients <= 100 else 0, 1 if len(held) <= 40 else 0)
    hover = "client %{x}: %{z} samples of %{y}"
    x = Axis("client, by most frequent class", names=[str(i) for i in order], grid=False)
    y = Axis("class", names=[run.classes[k] for k in held], reversed=True, grid=False)
    panel = Panel(x, y, [Heat(counts[held], "training samples", low=0, gaps=gaps, hover=hover)])
    height = 170 + max(220, min(22 * len(held), 620))
    return Picture("Who holds what: training samples by client and class", height, [panel])


def _sentence(run: Run) -> str:
    held = (run.train_counts > 0).sum(axis=1)
    main = run.train_counts.max(axis=1) / np.maximum(run.train_counts.sum(axis=1), 1)
    return (
        f"A client holds {int(np.median(held))} of {len(run.classes)} classes (median); its most frequent "
        f"class makes up {percent(float(np.median(main)), 0)} of its data."
    )


CHART = Definition("classes", "Who holds what", 60, build)
