"""Tables of results for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.table import Table

from fedpurin.report.load import find_runs, load_run


def results_table(paths: Sequence[Path]) -> Table:
    """A row per method; mean and standard deviation over its seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    unfinished = set()
    for path in find_runs(list(paths)):
        run = load_run(path)
        groups.setdefault(run.label, []).append(run.summary)
        if not run.complete:
            unfinished.add(run.label)
    first = next(iter(groups.values()))[0]
    seeds = max(len(g) for g in groups.values())
    title = (
        f"{first['dataset']}, alpha {first['alpha']:g}, {first['clients']} clients, {first['rounds']} rounds"
    )
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title + (f", {seeds} seeds" if seeds > 1 else ""),
        caption=CAPTION,
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for heading in ("best*", "trained", "upload", "merged", "worst", "MiB up", "MiB down"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, summaries in groups.items():
        mark = " (unfinished)" if label in unfinished else ""
        table.add_row(label + mark, *_cells(summaries))
    return table


CAPTION = (
    "Mean accuracy over clients in %, last round. trained: after local training;\n"
    "upload: the model as sent; merged: after the next download, what a client would\n"
    "use; worst: the worst client's merged. MiB per client and round, as really sent.\n"
    "* best round of upload, picked on test data as the paper does"
)


def _cells(summaries: list[dict[str, Any]]) -> list[str]:
    def accuracy(moment: str, key: str) -> str:
        return _spread([100 * a for s in summaries if (a := s["accuracy"][moment][key]) is not None], 1)

    def mib(direction: str) -> str:
        return _spread([s["mib_per_client_round"][direction] for s in summaries], 3)

    return [
        accuracy("upload", "best"),
        *(accuracy(moment, "last") for moment in ("trained", "upload", "merged")),
        accuracy("merged", "worst_client"),
        mib("up"),
        mib("down"),
    ]


def _spread(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    text = f"{mean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {stdev(values):.{digits}f}"
