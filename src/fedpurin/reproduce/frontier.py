"""`table-traffic` and `figure-traffic`: what accuracy costs in MiB, for any runs of the store.

The measure was fixed beforehand: MiB per client, both ways as sent, until the mean over clients reaches a
level in the mean of three consecutive rounds; beside it the mean over the last ten rounds.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.style import matplotlib_style
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.paper_figures import figure_name, line_look, new_figure, save
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import PAPER_SETS, paper_config
from fedpurin.reproduce.source import Source, column_label, record_column, spread
from fedpurin.reproduce.stats import LAST
from fedpurin.runs.same_setting import differences, labels
from fedpurin.runs.traffic import running_mean, traffic_to

MOMENTS = {"trained": "after training", "upload": "as uploaded", "merged": "after merging"}
LEVELS = (60.0, 65.0, 69.0)
SHORTEST = 10  # rounds; a run of three rounds was made to count bytes
Floats = NDArray[np.float64]


def mib_until(record: Record, moment: str) -> Floats:
    """[T] MiB per client that had travelled, both ways as sent, when round t was measured at this moment."""
    sent = {way: np.array(record.line["bytes"][way], dtype=np.float64) / 2**20 for way in ("up", "down")}
    total = {way: np.concatenate([[0.0], np.cumsum(values)]) for way, values in sent.items()}
    up = total["up"][:-1] if moment == "trained" else total["up"][1:]
    down = total["down"][1:] if moment == "merged" else total["down"][:-1]
    both: Floats = up + down
    return both


def groups(source: Source) -> list[tuple[str, list[Record]]]:
    """The runs of the request's data, alpha and training, by setting; each with what sets it apart."""
    request, by_setting = source.request, dict[Hashable, list[Record]]()
    for record in source.store.records():
        c = record.config
        if record.done < SHORTEST or c.data.dataset not in request.pick_datasets(None):
            continue
        chosen = (
            (not request.alphas or c.data.alpha in request.alphas)
            and (not request.methods or c.run.method in request.methods)
            and (not request.seeds or c.run.seed in request.seeds)
            and (not request.rounds or c.run.rounds == request.rounds)
        )
        if chosen and _trains_alike(record):
            by_setting.setdefault(record.setting, []).append(record)
    configs = [records[0].line["config"] for records in by_setting.values()]
    named = labels(configs, hidden=("data.dataset", "data.alpha"), defaults=False)

    def place(line: tuple[str, list[Record]]) -> tuple[Any, str, bool]:
        """By method, its usual setting first."""
        label, (record, *_) = line
        return record_column(record), record.config.run.method, "(" in label

    return sorted(zip(named, by_setting.values(), strict=True), key=place)


def _trains_alike(record: Record) -> bool:
    """Clients, samples and training as in the paper, or at mini scale; method and wire as they like."""
    c = record.config
    base = (
        paper_config(c.data.dataset, c.run.method)
        if c.data.dataset in (*PAPER_SETS, "fashion-mnist-mini")
        else c
    )
    apart = differences([c.as_dict(), base.as_dict()])
    return not [
        n for n in apart if not n.startswith(("method.", "wire.")) and n not in ("data.alpha", "run.rounds")
    ]


def traffic_table(source: Source) -> MarkupTable:
    rows: list[list[Item]] = []
    levels = source.request.levels or LEVELS
    for label, records in groups(source):
        for moment, words in MOMENTS.items():
            cells: list[Item] = []
            for level in levels:
                reached = [traffic_to(100 * r.curve(moment), mib_until(r, moment), level) for r in records]
                needed = [mib for mib in reached if mib is not None]
                missed = f" ({len(needed)} of {len(reached)} seeds)" if 0 < len(needed) < len(reached) else ""
                cells.append(f"{np.mean(needed):.1f}{missed}" if needed else "never")
            last = spread([r.mean(moment, slice(-LAST, None)) for r in records], records)
            total = float(np.mean([mib_until(r, "merged")[-1] for r in records]))
            name = f"{column_label(record_column(records[0]))}: {label}"
            rows.append([name, words, *cells, last, f"{total:.0f}", str(records[0].done), str(len(records))])
    header = [
        "",
        "measured",
        *(f"MiB to {level:g} %" for level in levels),
        "last ten rounds, %",
        "MiB in all",
    ]
    notes = [
        "MiB per client, both ways as sent, until the mean over clients reaches the level in the mean of "
        "three consecutive rounds. What a round had sent by the moment of measuring counts: after training "
        "its upload is still to come. Mean over seeds."
    ]
    return MarkupTable("Traffic to accuracy.", [*header, "rounds", "seeds"], rows, notes)


def traffic_picture(source: Source, out: Path) -> list[Path]:
    """Accuracy after training against MiB, a line per setting; means of three rounds."""
    lines = groups(source)
    columns = list(dict.fromkeys(record_column(records[0]) for _, records in lines))
    if not columns:
        return []
    with matplotlib_style():
        figure, axes = new_figure(figsize=(max(9.0, 5.0 * len(columns)), 4.4), ncols=len(columns))
        for axis, column in zip(axes[0], columns, strict=True):
            own = [(label, rs) for label, rs in lines if record_column(rs[0]) == column]
            for place, (label, records) in enumerate(own):
                record = max(records, key=lambda r: r.done)
                twins = [x for x, rs in own[:place] if rs[0].config.run.method == record.config.run.method]
                color, dash = line_look(record.config.run.method, len(twins))
                x, y = mib_until(record, "trained"), 100 * running_mean(record.curve("trained"))
                if x[-1] > 0:
                    axis.plot(x[1:], y[1:], color=color, linestyle=dash, label=label)
                else:  # sends nothing: where it ends
                    level = record.mean("trained", slice(-LAST, None))
                    axis.axhline(level, color=color, linestyle=dash, label=f"{label} (sends nothing)")
            axis.set_xscale("log")
            axis.set_xlabel("MiB per client, both ways as sent")
            axis.set_title(column_label(column))
        axes[0][0].set_ylabel("accuracy after training (%)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", fontsize=9)
        return save(figure, out, figure_name("traffic", source))
