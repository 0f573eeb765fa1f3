"""Runs that differ only in their seed form one group: one line in a chart, one row in a table."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpurin.report.load import Floats, Run, row_means
from fedpurin.report.style import METHODS, method_color, method_label, method_marks

# Settings that do not change what is computed, and the seed, which is averaged over.
IGNORED = {"seed", "workers", "engine", "dir", "device", "share_metrics", "checkpoint_every", "split_file"}
SHOWN_DIFFERENCES = 3


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

    @property
    def rounds(self) -> int:
        return max(run.rounds for run in self.runs)

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    def stacked(self, moment: str) -> Floats:
        """[T, clients of all seeds]: every client's accuracy, NaN where it was not measured."""
        parts = [_lengthen(run.accuracy(moment), self.rounds) for run in self.runs]
        return np.concatenate(parts, axis=1)

    def curve(self, moment: str) -> Floats:
        """[T]: mean over clients, then over the seeds that got this far."""
        parts = [_lengthen(run.mean_accuracy(moment)[:, None], self.rounds) for run in self.runs]
        return row_means(np.concatenate(parts, axis=1))

    def summary(self, moment: str, key: str) -> list[float]:
        """One value per seed from the runs' summaries; empty where nothing was measured."""
        values = [(run.summary.get("accuracy", {}).get(moment) or {}).get(key) for run in self.runs]
        return [value for value in values if value is not None]

    def mib(self, key: str) -> float:
        """Mean over the seeds of up, down, up_paper or down_paper in MiB per client and round."""
        values = [run.summary.get("mib_per_client_round", {}).get(key) for run in self.runs]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else 0.0


def _lengthen(values_tn: Floats, rounds: int) -> Floats:
    missing = rounds - len(values_tn)
    return np.concatenate([values_tn, np.full((missing, values_tn.shape[1]), np.nan)])


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order Separate, FedAvg, ..., FedPURIN, then other methods by name."""
    buckets: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        buckets.setdefault((run.method, *sorted(_settings(run).items())), []).append(run)
    ordered = sorted(buckets.values(), key=lambda bucket: _rank(bucket[0].method))
    groups: list[Group] = []
    for bucket in ordered:
        method = bucket[0].method
        rivals = [other[0] for other in ordered if other[0].method == method]
        place = [rival is bucket[0] for rival in rivals].index(True)
        label = method_label(method) + _difference(bucket[0], rivals)
        if any(group.label == label for group in groups):
            label += f" #{place + 1}"
        dash, marker, *_ = method_marks(method)
        groups.append(
            Group(
                id=f"g{len(groups)}",
                method=method,
                label=label,
                color=_shade(method_color(method), place),
                dash=dash if place == 0 else ("dot", "dash", "dashdot", "longdash")[(place - 1) % 4],
                marker=marker,
                runs=sorted(bucket, key=lambda run: run.seed),
            )
        )
    return groups


def _rank(method: str) -> tuple[int, str]:
    return (METHODS.index(method) if method in METHODS else len(METHODS), method)


def _settings(run: Run) -> dict[str, str]:
    """The config as flat text, without what does not tell two settings apart."""
    flat = {}
    for section, table in run.config.items():
        items = table.items() if isinstance(table, dict) else [("", table)]
        flat |= {f"{section}.{key}": repr(value) for key, value in items if key not in IGNORED}
    return flat


def _difference(run: Run, rivals: list[Run]) -> str:
    """What sets this run apart from others of its method: " (tau 0.2, alpha 0.5)"."""
    if len(rivals) == 1:
        return ""
    own = _settings(run)
    keys = sorted(set().union(*(_settings(rival) for rival in rivals)))
    differing = [key for key in keys if len({_settings(rival).get(key) for rival in rivals}) > 1]
    shown = [
        f"{key.partition('.')[2]} {_plain(own.get(key, 'unset'))}" for key in differing[:SHOWN_DIFFERENCES]
    ]
    return f" ({', '.join(shown)})"


def _plain(text: str) -> str:
    return text.strip("'\"")


def _shade(color: str, place: int) -> str:
    """The method's colour for its first setting, then lighter and darker ones."""
    if place == 0:
        return color
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    step = (0.14, -0.14, 0.24, -0.22)[(place - 1) % 4]
    mixed = colorsys.hls_to_rgb(hue, min(max(light + step, 0.2), 0.82), strength)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


def focus(groups: Sequence[Group]) -> Group:
    """The group the report speaks about first: FedPURIN where it is there, else the last in order."""
    return next((group for group in groups if group.method == "fedpurin"), groups[-1])


def focus_first(groups: Sequence[Group]) -> list[Group]:
    centre = focus(groups)
    return sorted(groups, key=lambda group: group is not centre)


def find(groups: Iterable[Group], method: str) -> Group | None:
    return next((group for group in groups if group.method == method), None)


def same_split(run: Run, group: Group) -> Run | None:
    """The group's run over the very same clients, so that client i is client i in both."""
    for other in group.runs:
        if run.split and run.split == other.split and run.clients == other.clients:
            return other
        if not run.split and (run.seed, run.config.get("data")) == (other.seed, other.config.get("data")):
            return other
    return None
