"""Runs that differ only in their seed form one group: one line in a chart, one row in a table.

Groups are ranked against each other only where they share a task: the same data, split, model and training.
"""

from __future__ import annotations

import colorsys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from fedpurin.report.measure import Measure, measure_of
from fedpurin.report.style import look
from fedpurin.runs.run import LAST_ROUNDS, MOMENTS, Floats, Run, row_means
from fedpurin.runs.same_setting import describe_setting, differences, setting_key, setting_of
from fedpurin.runs.traffic import cumulative_mib

OTHER_DASHES = ("dot", "dash", "dashdot", "longdash")  # for further settings of a method


@dataclass(frozen=True)
class Group:
    """The runs of one method with one setting, one per seed."""

    id: str
    method: str
    label: str
    color: str
    dash: str
    marker: str
    runs: list[Run] = field(repr=False)

    @cached_property
    def rounds(self) -> int:
        return max(run.rounds for run in self.runs)

    @cached_property
    def task(self) -> dict[str, Any]:
        return task_settings(self.runs[0].config)

    @property
    def window(self) -> int:
        return last_window(self.rounds)

    @property
    def sends(self) -> bool:
        return any(len(run.ledger) for run in self.runs)

    def moment(self, asked: str) -> str:
        """The moment itself; for a run without exchange, where nothing is merged, the trained model."""
        return standing_in(self.runs[0], asked)

    def stacked(self, moment: str) -> Floats:
        """[T, clients of all seeds]: every client's accuracy, NaN where it was not measured."""
        return self._side_by_side([run.accuracy(self.moment(moment)) for run in self.runs])

    def curve(self, moment: str) -> Floats:
        """[T]: mean over clients, then over seeds."""
        return self.over_seeds([run.mean_accuracy(self.moment(moment)) for run in self.runs])

    def traffic(self, moment: str = "merged") -> Floats:
        """[T]: MiB per client, both ways, until a round is measured at this moment."""
        return self.over_seeds([cumulative_mib(run, moment) for run in self.runs])

    def over_seeds(self, parts: Iterable[Floats]) -> Floats:
        """[T]: the mean of what the seeds say of each round; those that stopped early say nothing later."""
        return row_means(self._side_by_side([part_t[:, None] for part_t in parts]))

    def _side_by_side(self, parts: Iterable[Floats]) -> Floats:
        """[T, columns of all parts], with NaN below those of a seed that stopped early."""
        rounds = self.rounds
        padded = [np.pad(part, ((0, rounds - len(part)), (0, 0)), constant_values=np.nan) for part in parts]
        return np.concatenate(padded, axis=1)

    def last_means(self, moment: str) -> list[float]:
        """One value per seed: the mean of its last measured rounds; empty where nothing was measured."""
        means = (run.mean_accuracy(self.moment(moment)) for run in self.runs)
        measured = [mean_t[~np.isnan(mean_t)] for mean_t in means]
        return [float(mean_t[-last_window(len(mean_t)) :].mean()) for mean_t in measured if len(mean_t)]

    def last_mean(self, moment: str) -> float:
        """The mean of the seeds; NaN when never measured."""
        values = self.last_means(moment)
        return float(np.mean(values)) if values else float("nan")

    def summary(self, moment: str, key: str) -> list[float]:
        """One value per seed from the runs' summaries; empty where nothing was measured."""
        parts = [run.summary.get("accuracy", {}).get(self.moment(moment)) or {} for run in self.runs]
        return [part[key] for part in parts if part.get(key) is not None]

    @property
    def validated(self) -> list[float]:
        """One value per seed: the test accuracy of the models that clients chose by validation."""
        parts = [run.summary.get("by_validation") or {} for run in self.runs]
        return [part["accuracy"] for part in parts if part.get("accuracy") is not None]

    def mib(self, key: str) -> float:
        """Mean over the seeds of up, down, up_paper or down_paper in MiB per client and round."""
        values = [run.summary.get("mib_per_client_round", {}).get(key) for run in self.runs]
        recorded = [value for value in values if value is not None]
        return float(np.mean(recorded)) if recorded else 0.0


Groups = Sequence[Group]


def measured_as(groups: Iterable[Group]) -> Measure:
    return measure_of(run.config for group in groups for run in group.runs)


def last_window(rounds: int) -> int:
    """How many rounds count as the last: ten, or a third of a short run, so that its start does not count."""
    return min(LAST_ROUNDS, max(1, rounds // 3))


def last_name(groups: Groups) -> str:
    """The name of the mean of the last rounds: "Last 10"."""
    windows = {group.window for group in groups}
    return f"Last {windows.pop()}" if len(windows) == 1 else "Last rounds"


def standing_in(run: Run, moment: str) -> str:
    return moment if run.measured(moment) else next((m for m in MOMENTS if run.measured(m)), moment)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their methods: Separate, FedAvg, ..., FedPURIN; others where they say."""
    settings: dict[Hashable, list[Run]] = {}
    for run in runs:
        settings.setdefault((run.method, setting_key(run.config)), []).append(run)
    ordered = sorted(settings.values(), key=lambda seeds: (look(seeds[0].method).order, seeds[0].method))
    groups: list[Group] = []
    for method, found in groupby(ordered, key=lambda seeds: seeds[0].method):
        style, siblings = look(method), list(found)
        apart = differences([seeds[0].config for seeds in siblings])
        for place, seeds in enumerate(siblings):
            label = style.label + describe_setting(seeds[0].config, apart)
            if any(group.label == label for group in groups):
                label += f" #{place + 1}"
            color, dash = style.color, style.dash
            if place > 0:
                color, dash = _shade(color, place), OTHER_DASHES[(place - 1) % len(OTHER_DASHES)]
            by_seed = sorted(seeds, key=lambda run: run.seed)
            groups.append(Group(f"g{len(groups)}", method, label, color, dash, style.marker, by_seed))
    return groups


def _shade(color: str, place: int) -> str:
    """Of the method's colour for its further settings: lighter and darker ones."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    step = (0.14, -0.14, 0.24, -0.22)[(place - 1) % 4]
    mixed = colorsys.hls_to_rgb(hue, min(max(light + step, 0.2), 0.82), strength)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


def task_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The setting without the method, its own settings and the wire: what runs must share to be ranked."""
    other = ("run.method", "method.", "wire.")
    return {name: value for name, value in setting_of(config).items() if not name.startswith(other)}


def comparable(one: Group, other: Group) -> bool:
    """The same task, and the same split wherever both have a run of one seed."""
    splits = {run.seed: run.split for run in one.runs}
    pairs = [(splits.get(run.seed), run.split) for run in other.runs]
    return one.task == other.task and all(a == b for a, b in pairs if a and b)


def rivals(group: Group, groups: Iterable[Group]) -> list[Group]:
    """The groups that may be ranked with this one, itself among them."""
    return [other for other in groups if comparable(group, other)]


def tasks(groups: Groups) -> list[list[Group]]:
    """All groups, those of one task together; the task of the report's main group first."""
    left, clusters = focus_first(groups) if groups else [], []
    while left:
        cluster = rivals(left[0], left)
        clusters.append([group for group in groups if group in cluster])
        left = [group for group in left if group not in cluster]
    return clusters


def task_names(clusters: Sequence[Groups]) -> list[str]:
    """What tells the tasks apart: "alpha 0.1, dataset cifar-10"."""
    configs = [cluster[0].runs[0].config for cluster in clusters]
    names = [name for name in differences(configs) if any(name in task_settings(c) for c in configs)]
    told = [describe_setting(config, names).strip(" ()") for config in configs]
    return [text or f"setting {i + 1}" for i, text in enumerate(told)]


def focus(groups: Groups) -> Group:
    """The group the report speaks about first: FedPURIN where it is there, else the last in order."""
    return find(groups, "fedpurin") or groups[-1]


def focus_first(groups: Groups) -> list[Group]:
    centre = focus(groups)
    return sorted(groups, key=lambda group: group is not centre)


def find(groups: Iterable[Group], method: str) -> Group | None:
    return next((group for group in groups if group.method == method), None)
