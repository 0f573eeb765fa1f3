"""`table-bundled`: every setting of the store on the quickstart's data and training, a column per seed."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from fedpurin.config import Config
from fedpurin.methods import METHODS
from fedpurin.reproduce.frontier import mib_until
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import Source
from fedpurin.runs.same_setting import describe_setting, differences, method_label

PRESET = "quickstart"
LAST = 3  # rounds whose mean is shown
MOMENTS = {"trained": "after training", "merged": "after merging"}


def usual(method: str) -> Config:
    """The preset with this method."""
    return Config.preset(PRESET).updated({"run": {"method": method}})


def rows(source: Source) -> list[tuple[str, list[Record]]]:
    """Settings that differ from the preset in method and values on the wire alone, each with its seeds."""
    request, by_setting, names = source.request, dict[Hashable, list[Record]](), dict[Hashable, str]()
    for record in source.store.records():
        table, method = record.line["config"], record.config.run.method
        if not record.complete or (request.methods and method not in request.methods):
            continue
        apart = differences([table, usual(method).as_dict()])
        if all(name.startswith(("method.", "wire.")) for name in apart):
            by_setting.setdefault(record.setting, []).append(record)
            names[record.setting] = method_label(method) + describe_setting(table, apart, most=None)
    order = list(METHODS)

    def place(key: Hashable) -> tuple[int, int, str]:
        """By method, its usual setting first."""
        method = by_setting[key][0].config.run.method
        at = order.index(method) if method in order else len(order)
        return at, names[key].count("("), names[key]

    return [(names[key], by_setting[key]) for key in sorted(by_setting, key=place)]


def bundled_table(source: Source) -> MarkupTable:
    seeds = source.request.pick_seeds()
    body: list[list[Item]] = []
    for name, records in rows(source):
        by_seed = {record.config.run.seed: record for record in records}
        here = [by_seed[seed] for seed in seeds if seed in by_seed]
        if not here:
            continue
        cells: list[Item] = [
            f"{by_seed[seed].mean('trained', slice(-LAST, None)):.1f}" if seed in by_seed else "-"
            for seed in seeds
        ]
        means = [np.mean([r.mean(moment, slice(-LAST, None)) for r in here]) for moment in MOMENTS]
        whole = len(here) == len(seeds)
        total = float(np.mean([mib_until(r, "merged")[-1] for r in here]))
        body.append([name, *cells, *(f"{m:.1f}" if whole else "-" for m in means), f"{total:.3f}"])
    header = ["", *(f"seed {seed}" for seed in seeds), "mean", "mean after merging", "MiB"]
    c = usual("fedavg")
    notes = [
        f"Bundled data, α = {c.data.alpha:g}, {c.run.clients} clients x {c.data.train_samples} samples, "
        f"{c.run.rounds} rounds. Accuracy after training in percent, mean of the last three rounds; MiB per "
        "client for the whole run, both ways as sent. Means over seeds where all of them were run."
    ]
    return MarkupTable("Bundled data.", header, body, notes)
