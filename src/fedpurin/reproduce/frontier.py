"""The measure of docs/frontier.md: what accuracy costs in MiB, for any runs of the store.

It was fixed beforehand: MiB per client, both ways as sent, until the mean over clients reaches a level in the
mean of three consecutive rounds; beside it the mean over the last ten rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.config import Config
from fedpurin.report.style import MOMENT_LABELS, matplotlib_style
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.paper_figures import (
    figure_name,
    legend_below,
    legend_entries,
    line_look,
    new_figure,
    save,
)
from fedpurin.reproduce.result_store import Record, finished_first
from fedpurin.reproduce.scales import own, paper_config
from fedpurin.reproduce.source import Source, column_label, spread
from fedpurin.reproduce.stats import LAST, seeds_together
from fedpurin.runs.run import Floats
from fedpurin.runs.same_setting import differences, labels
from fedpurin.runs.traffic import running_mean, traffic_to

LEVELS = (60.0, 65.0, 69.0)
SHORTEST = 10  # rounds; a run of three rounds was made to count bytes


def mib_until(record: Record, moment: str) -> Floats:
    """[T] MiB per client that had travelled, both ways as sent, when round t was measured at this moment."""
    sent = {way: np.array(record.line["bytes"][way], dtype=np.float64) / 2**20 for way in ("up", "down")}
    total = {way: np.concatenate([[0.0], np.cumsum(values)]) for way, values in sent.items()}
    up = total["up"][:-1] if moment == "trained" else total["up"][1:]
    down = total["down"][1:] if moment == "merged" else total["down"][:-1]
    both: Floats = up + down
    return both


def mib_to(records: list[Record], moment: str, level: float) -> str:
    """Mean over the seeds that reach the level, in percent, and how many do."""
    reached = [traffic_to(100 * r.curve(moment), mib_until(r, moment), level) for r in records]
    needed = [mib for mib in reached if mib is not None]
    missed = f" ({len(needed)} of {len(reached)} seeds)" if 0 < len(needed) < len(reached) else ""
    return f"{np.mean(needed):.1f}{missed}" if needed else "never"


def mib_in_all(records: list[Record]) -> float:
    return float(np.mean([mib_until(record, "merged")[-1] for record in records]))


def apart(record: Record, base: Config, free: tuple[str, ...] = ()) -> list[str]:
    """In what a run differs from this one, but for method, wire and what is free."""
    found = differences([record.config.as_dict(), base.as_dict()])
    return [name for name in found if not name.startswith(("method.", "wire.", *free))]


def _as_set(config: Config, changes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether it has these settings, of those that its method has."""
    own_changes = own(changes, config.run.method)
    return not differences([config.as_dict(), config.updated(own_changes).as_dict()])


def groups(source: Source) -> list[tuple[str, list[Record]]]:
    """The runs of the request's data, alpha and training, by setting; each with what sets it apart."""
    request = source.request

    def chosen(record: Record) -> bool:
        """Clients, samples and training as in the paper, or at mini scale; method and wire as they like."""
        c = record.config
        return (
            record.done >= SHORTEST
            and c.data.dataset in request.pick_datasets()
            and (not request.alphas or c.data.alpha in request.alphas)
            and (not request.methods or c.run.method in request.methods)
            and (not request.seeds or c.run.seed in request.seeds)
            and (not request.rounds or c.run.rounds == request.rounds)
            and _as_set(c, request.changes)
            and not apart(record, paper_config(c.data.dataset, c.run.method), ("data.alpha", "run.rounds"))
        )

    settings = [finished_first(records) for records in seeds_together(filter(chosen, source.store.records()))]
    configs = [records[0].line["config"] for records in settings]
    named = labels(configs, hidden=("data.dataset", "data.alpha"), defaults=False)

    def place(line: tuple[str, list[Record]]) -> tuple[Any, str, bool]:
        """By method, its usual setting first."""
        label, (record, *_) = line
        return record.column, record.config.run.method, "(" in label

    return sorted(zip(named, settings, strict=True), key=place)


def traffic_table(source: Source) -> MarkupTable:
    rows: list[list[Item]] = []
    levels = source.request.levels or LEVELS
    for label, records in groups(source):
        for moment, words in MOMENT_LABELS.items():
            cells = [mib_to(records, moment, level) for level in levels]
            last = spread([r.mean(moment, slice(-LAST, None)) for r in records], records)
            total = mib_in_all(records)
            name = f"{column_label(records[0].column)}: {label}"
            rows.append([name, words, *cells, last, f"{total:.0f}", str(records[0].done), str(len(records))])
    header = ["", "measured", *(f"MiB to {level:g} %" for level in levels)]
    header += ["last ten rounds, %", "MiB in all", "rounds", "seeds"]
    notes = [
        "MiB per client, both ways as sent, until the mean over clients reaches the level in the mean of "
        "three consecutive rounds. What a round had sent by the moment of measuring counts: after training "
        "its upload is still to come. Mean over seeds."
    ]
    return MarkupTable("Traffic to accuracy.", header, rows, notes)


def traffic_picture(source: Source, out: Path) -> list[Path]:
    return draw_traffic(groups(source), source, out, "traffic")


def draw_traffic(lines: list[tuple[str, list[Record]]], source: Source, out: Path, kind: str) -> list[Path]:
    """Accuracy after training against MiB, means of three rounds; a setting's other seeds are thin."""
    columns = list(dict.fromkeys(records[0].column for _, records in lines))
    if not columns:
        return []
    from matplotlib.lines import Line2D

    with matplotlib_style():
        figure, axes = new_figure((max(9.6, 5.0 * len(columns)), 5.4), ncols=len(columns))
        for axis, column in zip(axes[0], columns, strict=True):
            own = [(label, rs) for label, rs in lines if rs[0].column == column]
            for place, (label, records) in enumerate(own):
                method = records[0].config.run.method
                twins = [x for x, rs in own[:place] if rs[0].config.run.method == method]
                draw_lines(axis, label, records, line_look(method, len(twins)))
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.set_xlabel("MiB per client, both ways as sent")
            lengths = sorted({f"{r.config.run.rounds}" for _, records in own for r in records})
            axis.set_title(f"{column_label(column)}, {'/'.join(lengths)} rounds, means of three")
        axes[0][0].set_ylabel("accuracy after training (%)")
        named = legend_entries(axes[0])
        if any(len(records) > 1 for _, records in lines):
            named["thin: other seeds"] = Line2D([], [], color="#777777", linewidth=0.7)
        legend_below(figure, named, min(len(named), 3))
        return save(figure, out, figure_name(kind, source))


def draw_lines(axis: Any, label: str, records: list[Record], look: tuple[str, Any]) -> None:
    color, dash = look
    main, *others = sorted(records, key=lambda r: (-r.done, r.config.run.seed))
    if mib_until(main, "trained")[-1] == 0:  # sends nothing: where it ends
        level = main.mean("trained", slice(-LAST, None))
        axis.axhline(level, color=color, linestyle=dash, label=f"{label} (sends nothing)")
        return
    for record in (main, *others):
        x, y = mib_until(record, "trained"), 100 * running_mean(record.curve("trained"))
        own = {"label": label} if record is main else {"linewidth": 0.7, "alpha": 0.6, "zorder": 1}
        axis.plot(x[1:], y[1:], color=color, linestyle=dash, **own)
