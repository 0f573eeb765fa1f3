"""MiB per client and round, before and after beta, by the paper's rule and as sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpurin.reproduce.markup import Entry, Item, MarkupTable
from fedpurin.reproduce.recipes import Recipe
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import option
from fedpurin.reproduce.source import Source, column_label, scale_text

NOT_PRINTED: list[float] | list[None] = [None] * 4


@dataclass(frozen=True)
class MeanTraffic:
    """MiB per client and round: up before beta, up after, down before, down after."""

    paper_rule: list[float | None]
    as_sent: list[float | None]


def traffic(records: list[Record]) -> MeanTraffic:
    def sides(suffix: str) -> list[float | None]:
        means: list[float | None] = []
        for way in ("up", "down"):
            parts = [split_at_beta(record, way + suffix) for record in records]
            for side in (0, 1):
                values = np.concatenate([part[side] for part in parts])
                means.append(float(values.mean()) if len(values) else None)
        return means

    return MeanTraffic(sides("_paper"), sides(""))


def split_at_beta(record: Record, name: str) -> tuple[np.ndarray, np.ndarray]:
    """MiB of the rounds up to beta and after it; the same rounds twice for a method without beta."""
    values = series(record, name)
    if record.beta is None:
        return values, values
    return values[: record.beta], values[record.beta :]


def series(record: Record, name: str) -> np.ndarray:
    """[T] MiB per client and round: up or down as sent; up_paper or down_paper as the paper counts."""
    return counted_like_the_paper(record) if name == "down_paper" else record.mib(name)


def counted_like_the_paper(record: Record) -> np.ndarray:
    """[T] MiB down. Until beta the paper counts a client's critical part as sent, always.

    We do not send it to a client without collaborators, for whom it is its own; a small beta makes many such.
    """
    values = record.mib("down_paper")
    line, method, beta = record.line, record.config.run.method, record.beta
    d = line["exchanged"]
    if method == "fedcac":
        values[:beta] = 4 * d / 2**20
    elif method == "fedpurin" and any(line["bytes"]["outside"]):
        outside = 4 * np.array(line["bytes"]["outside"], dtype=np.float64)[: len(values)]
        critical = np.array(line["bytes"]["up_paper"], dtype=np.float64)[: len(values)] - -(-d // 8)
        values[:beta] = (outside + critical)[:beta] / 2**20
    return values


def communication_table(source: Source, recipe: Recipe) -> MarkupTable:
    rows: list[list[Item]] = []
    for column in recipe.columns(source.request):
        for row in recipe.chosen_rows(source.request):
            records = source.records(recipe, row, column)
            if not records:
                continue
            measured = traffic(records)
            expected = source.paper.traffic(*column, row.method) or NOT_PRINTED
            items: list[Item] = [f"{column_label(column)}: {row.label}"]
            items += [
                "-" if value is None else Entry(value, None, paper)
                for value, paper in zip(measured.paper_rule, expected, strict=True)
            ]
            items += ["-" if value is None else Entry(value) for value in measured.as_sent]
            rows.append(items)
    header = ["", "up, t ≤ β", "up, t > β", "down, t ≤ β", "down, t > β"]
    header += [f"{name} as sent" for name in header[1:]]
    notes = [
        "MiB (2^20 bytes) per client and round by the paper's counting rule, in brackets the paper's value "
        "and our difference (until β the critical part counts as sent to everybody, as there); then the "
        "bytes really sent, headers and metrics included. " + scale_text(source, recipe)
    ]
    if source.request.scale != "paper" or source.request.rounds:
        notes.append(
            "The paper's figures are means over a hundred or more rounds on each side of β; ours over the "
            "rounds of our scale, and masks shrink as training converges."
        )
    return MarkupTable("Communication.", header, rows, notes)


def kept_table(source: Source, recipe: Recipe) -> MarkupTable:
    """Layers of FedPURIN's uploads that keep clearly less than tau, in the first and in the last round."""
    rows: list[list[Item]] = []
    row = next(row for row in recipe.rows if row.method == "fedpurin")
    for column in recipe.columns(source.request):
        for record in source.records(recipe, row, column):
            tau = option(record.config, "tau")
            full = 0
            before = len(rows)
            for name, shares in record.line["kept"].items():
                recorded = [share for share in shares if share is not None]
                if recorded and min(recorded) < tau - 0.01:
                    rows.append(
                        [
                            f"{column_label(column)}: {name}",
                            f"{100 * recorded[0]:.1f} %",
                            f"{100 * recorded[-1]:.1f} %",
                        ]
                    )
                else:
                    full += 1
            rows.append(
                [
                    f"{column_label(column)}: {'all' if len(rows) == before else 'the other'} {full} layers",
                    f"τ = {100 * tau:.0f} %",
                    f"τ = {100 * tau:.0f} %",
                ]
            )
    return MarkupTable(
        "Layers that keep less than τ.", ["", "kept, first round", "kept, last round"], rows, []
    )


def saving(purin: list[Record], dense: list[Record], share_before: float) -> tuple[float, float]:
    """Percent saved against FedAvg by the paper's rule, up and down, with beta's share of the rounds."""
    ours, theirs = traffic(purin).paper_rule, traffic(dense).paper_rule
    saved = []
    for before, after in ((0, 1), (2, 3)):
        low, high = ours[before], ours[after]
        full = theirs[before]
        assert low is not None
        assert full is not None
        mean = low if high is None else share_before * low + (1 - share_before) * high
        saved.append(100 * (1 - mean / full))
    return saved[0], saved[1]
