"""`fedpurin show`: the table of results for the terminal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.table import Table

from fedpurin.report.measure import Measure, measure_of
from fedpurin.runs.run import Run, find_runs, load_run
from fedpurin.runs.same_setting import differences, labels, own_name, setting_key, setting_of

TITLE = ("data.dataset", "data.alpha", "run.clients", "run.rounds")  # unless the rows differ in it


def results_table(paths: Sequence[Path]) -> Table:
    """A row per method and setting; mean and standard deviation over its seeds."""
    groups: dict[Hashable, list[Run]] = {}
    for path in find_runs(list(paths)):
        run = load_run(path)
        groups.setdefault(setting_key(run.config), []).append(run)
    firsts = [runs[0] for runs in groups.values()]
    apart = differences([run.config for run in firsts])
    measure = measure_of(run.config for run in firsts)
    seeds = max(len(runs) for runs in groups.values())
    validated = any("by_validation" in run.summary for runs in groups.values() for run in runs)
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_title(firsts[0], apart) + (f", {seeds} seeds" if seeds > 1 else ""),
        caption=measure.words(
            CAPTION.format(" in %" if measure.share else "") + (VALIDATED if validated else "")
        ),
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for heading in (
        "best*", *(["by valid."] if validated else []),
        "trained", "upload", "merged", "worst", "MiB up", "MiB down",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    always = [name for name in TITLE if name in apart]
    named = labels([run.config for run in firsts], always=always)
    for label, runs in zip(named, groups.values(), strict=True):
        unfinished = "" if all(run.complete for run in runs) else " (unfinished)"
        table.add_row(label + unfinished, *_cells([run.summary for run in runs], validated, measure))
    return table


def as_document(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The same for programs: what result.json says of each run, with its path and whether it is complete."""
    runs = [load_run(path) for path in find_runs(list(paths))]
    return [{"path": str(run.path), "complete": run.complete, **run.summary} for run in runs]


def _title(run: Run, apart: Sequence[str]) -> str:
    """What all rows have in common."""
    texts = {
        "data.dataset": own_name(run.summary["dataset"], "data"),
        "data.alpha": f"alpha {run.summary['alpha']}",
        "run.clients": f"{run.clients} clients",
        "run.rounds": f"{run.summary['rounds']} rounds",
    }
    counts = setting_of(run.config)
    return ", ".join(text for name, text in texts.items() if name in counts and name not in apart)


CAPTION = (
    "Mean accuracy over clients{}, last round. trained: after local training;\n"
    "upload: the model as sent; merged: after the next download, before any further\n"
    "training; worst: the worst client's merged. MiB per client and round, as really sent.\n"
    "* best round of upload, picked on test data as the paper does"
)
VALIDATED = (
    "\nby valid.: the final models, each client's best after training by its validation samples,\n"
    "which are no test samples; this is their accuracy on the test samples"
)


def _cells(summaries: list[dict[str, Any]], validated: bool, measure: Measure) -> list[str]:
    scale, digits = measure.scale, 1 if measure.share else 3

    def accuracy(moment: str, key: str) -> str:
        return _spread(
            [scale * a for s in summaries if (a := s["accuracy"][moment][key]) is not None], digits
        )

    def mib(direction: str) -> str:
        values = [s["mib_per_client_round"][direction] for s in summaries]
        most = max(values)
        return _spread(values, 3 if most == 0 or most >= 0.01 else 4 if most >= 0.001 else 6)

    chosen = [scale * s["by_validation"]["accuracy"] for s in summaries if "by_validation" in s]
    return [
        accuracy("upload", "best"),
        *([_spread(chosen, digits)] if validated else []),
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
