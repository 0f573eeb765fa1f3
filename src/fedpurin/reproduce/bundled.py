"""Every setting of the store on the quickstart's data and training, and what it is worth beside another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpurin.config import Config
from fedpurin.methods import METHODS
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.reproduce.frontier import apart, mib_in_all
from fedpurin.reproduce.markup import Item, MarkupTable
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import INTERVAL, Source, gap_text
from fedpurin.reproduce.stats import paired, partners, seeds_together
from fedpurin.runs.same_setting import describe_setting, differences, method_label, setting_of

LAST = 3  # rounds whose mean is shown
OURS = "fedfrugal"


@dataclass(frozen=True)
class Setting:
    """The runs of one setting, and in what it differs from its method's usual one."""

    name: str
    changes: frozenset[tuple[str, str]]
    by_seed: dict[int, Record]

    @property
    def records(self) -> list[Record]:
        return list(self.by_seed.values())

    @property
    def method(self) -> str:
        return self.records[0].config.run.method

    def mean(self, moment: str) -> float:
        return float(np.mean([record.mean(moment, slice(-LAST, None)) for record in self.records]))


def quickstart(method: str) -> Config:
    return Config.preset("quickstart").updated({"run": {"method": method}})


def settings(source: Source) -> list[Setting]:
    """Settings that differ from the preset in method and values on the wire alone, each with its seeds."""
    wanted, seeds, order = source.request.methods, source.request.pick_seeds(), list(METHODS)

    def chosen(record: Record) -> bool:
        run = record.config.run
        asked = run.method in (wanted or [run.method]) and run.seed in seeds
        return record.complete and asked and not apart(record, quickstart(run.method))

    def place(one: Setting) -> tuple[int, int, str]:
        """By method, its usual setting first."""
        return order.index(one.method) if one.method in order else len(order), len(one.changes) > 0, one.name

    return sorted(map(_setting, seeds_together(filter(chosen, source.store.records()))), key=place)


def _setting(records: list[Record]) -> Setting:
    table, method = records[0].config.as_dict(), records[0].config.run.method
    own, changed = setting_of(table), differences([table, quickstart(method).as_dict()])
    by_seed = sorted((record.config.run.seed, record) for record in records)
    return Setting(
        method_label(method) + describe_setting(table, changed, most=None),
        frozenset((name, repr(own[name])) for name in changed if name in own),
        dict(by_seed),
    )


def bundled_table(source: Source) -> MarkupTable:
    """Every setting, a column per seed."""
    seeds = source.request.pick_seeds()
    body: list[list[Item]] = []
    for one in settings(source):
        trained = {seed: record.mean("trained", slice(-LAST, None)) for seed, record in one.by_seed.items()}
        cells = [f"{trained[seed]:.1f}" if seed in trained else "-" for seed in seeds]
        everywhere = len(trained) == len(seeds)
        cells += [f"{one.mean(moment):.1f}" if everywhere else "-" for moment in ("trained", "merged")]
        body.append([one.name, *cells, f"{mib_in_all(one.records):.3f}"])
    header = ["", *(f"seed {seed}" for seed in seeds), "mean", "mean after merging", "MiB"]
    notes = [
        f"{_data()} Accuracy after training in percent, mean of the last three rounds; MiB per "
        "client for the whole run, both ways as sent. Means over seeds where all of them were run."
    ]
    return MarkupTable("Bundled data.", header, body, notes)


def _data() -> str:
    c = quickstart("fedavg")
    return (
        f"Bundled data, α = {c.data.alpha:g}, {c.run.clients} clients x {c.data.train_samples} samples, "
        f"{c.run.rounds} rounds."
    )


# One setting beside another


def switches_table(source: Source) -> MarkupTable:
    """Each changed setting beside the nearest one of its method, so that a row shows what it adds."""
    found = settings(source)
    pairs = [(one, nearest(one, found)) for one in found if one.changes]
    return _beside([(one, other) for one, other in pairs if other], source, "What each switch is worth.")


def nearest(one: Setting, others: list[Setting]) -> Setting | None:
    """The setting of the same method that lacks some of this one's changes, and as few as possible."""
    below = [other for other in others if other.method == one.method and other.changes < one.changes]
    return max(below, key=lambda other: len(other.changes), default=None)


def rivals_table(source: Source) -> MarkupTable:
    """FedFrugal beside the others: each one's usual setting, and its most accurate one."""
    found = settings(source)
    ours = [one for one in found if one.method == OURS and not one.changes]
    rivals = []
    for method in dict.fromkeys(one.method for one in found if one.method != OURS):
        own = [one for one in found if one.method == method]
        best = max(own, key=lambda one: (len(one.records), one.mean("trained")))
        rivals += [one for one in own if one is best or not one.changes]
    return _beside([(one, rival) for one in ours for rival in rivals], source, "FedFrugal and the others.")


def _beside(pairs: list[tuple[Setting, Setting]], source: Source, title: str) -> MarkupTable:
    seeds = source.request.pick_seeds()
    header = ["", "beside", f"by seed ({', '.join(map(str, seeds))})", *MOMENT_LABELS.values()]
    notes = [
        f"{_data()} Differences in accuracy, points over the same clients, last three rounds; by seed: after "
        f"training; the others: {INTERVAL}. MiB per client for the whole run, both ways as sent, and divided "
        "by the MiB of what stands beside it."
    ]
    rows = [_row(one, other, seeds) for one, other in pairs]
    return MarkupTable(title, [*header, "MiB", "of its MiB"], rows, notes)


def _row(one: Setting, other: Setting, seeds: list[int]) -> list[Item]:
    gaps = {moment: paired(one.records, other.records, moment, LAST) for moment in MOMENT_LABELS}
    told = [gap_text(gap) for gap in gaps.values()]
    by_seed = " / ".join(_of_seed(one, other, seed) for seed in seeds)
    pairs = partners(one.records, other.records)
    mine, theirs = (mib_in_all(list(records)) if records else 0.0 for records in zip(*pairs, strict=True))
    share = f"{mine / theirs:.3f}" if theirs else "-"
    return [one.name, other.name, by_seed, *told, f"{mine:.3f}", share]


def _of_seed(one: Setting, other: Setting, seed: int) -> str:
    mine, theirs = ([s.by_seed[seed]] if seed in s.by_seed else [] for s in (one, other))
    gap = paired(mine, theirs, "trained", LAST)
    return f"{round(gap.mean, 1) + 0.0:+.1f}" if gap else "-"  # no "-0.0"
