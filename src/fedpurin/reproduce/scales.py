"""How large an experiment is: the paper's own size, fewer rounds of it, or minutes on a laptop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fedpurin.config import Config
from fedpurin.errors import ConfigError
from fedpurin.runs.same_setting import differences, method_settings


@dataclass(frozen=True)
class DataSet:
    label: str
    preset: str
    alphas: tuple[float, ...]


DATASETS = {
    "fashion-mnist": DataSet("Fashion-MNIST", "paper-fashion-mnist", (0.1, 0.5, 1.0)),
    "cifar-10": DataSet("CIFAR-10", "paper-cifar10", (0.1, 0.5, 1.0)),
    "cifar-100": DataSet("CIFAR-100", "paper-cifar100", (0.01, 0.1, 0.5)),
    "fashion-mnist-mini": DataSet("Fashion-MNIST mini", "mini", (0.1, 0.5, 1.0)),
}
PAPER_SETS = ("fashion-mnist", "cifar-10", "cifar-100")
QUICK_SHARE = 10  # quick runs a tenth of the paper's rounds, beta scaled along

SCALES: dict[str, tuple[Sequence[str], Sequence[int]]] = {
    "paper": (PAPER_SETS, (1, 2, 3)),
    "quick": (PAPER_SETS, (1,)),
    "mini": (("fashion-mnist-mini",), (1, 2, 3)),
}


@dataclass(frozen=True)
class Request:
    """What the user asked for: a scale and filters. Empty filters mean everything."""

    scale: str = "quick"
    datasets: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    rounds: int | None = None
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # --set section.key=value
    levels: tuple[float, ...] = ()  # of table-traffic, percent

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ConfigError(f"--scale {self.scale!r} is unknown; choose one of {', '.join(SCALES)}")
        for dataset in self.datasets:
            if dataset not in SCALES[self.scale][0]:
                offered = ", ".join(SCALES[self.scale][0])
                raise ConfigError(f"--scale {self.scale} has no data set {dataset!r}; it has {offered}")

    def pick_datasets(self, offered: Iterable[str] | None = None) -> list[str]:
        """The data sets of this scale; of those a recipe offers, the ones asked for."""
        here = SCALES[self.scale][0]
        usual = [d for d in here if offered is None or d in set(offered) or self.scale == "mini"]
        return [d for d in here if d in self.datasets] if self.datasets else usual

    def pick_alphas(self, dataset: str, offered: Iterable[float] | None = None) -> list[float]:
        return list(self.alphas or offered or DATASETS[dataset].alphas)

    def pick_seeds(self) -> list[int]:
        return list(self.seeds or SCALES[self.scale][1])

    def config(
        self, dataset: str, alpha: float, seed: int, method: str, table: Mapping[str, Any] | None = None
    ) -> Config:
        """The preset at this scale, then the recipe's `table`, then --set."""
        base = paper_config(dataset, method)
        rounds = self.rounds or base.run.rounds // (QUICK_SHARE if self.scale == "quick" else 1)
        config = base.updated({"run": {"seed": seed, "rounds": rounds}, "data": {"alpha": alpha}})
        beta = option(base, "beta")
        if beta is not None:
            config = config.updated({"method": {"beta": max(1, round(beta * rounds / base.run.rounds))}})
        return config.updated(own(table or {}, method)).updated(own(self.changes, method, self.methods))


@lru_cache
def paper_config(dataset: str, method: str) -> Config:
    """The preset of the data set for this method, with those of its settings that the method has."""
    return Config.preset(DATASETS[dataset].preset).updated({"run": {"method": method}})


def own(table: Mapping[str, Any], method: str, methods: Sequence[str] = ()) -> dict[str, Any]:
    """A table of settings for several methods, without those that this one does not have.

    Asked for this method alone, it keeps them all, so that the configuration refuses what is unknown.
    """
    own_table = {section: dict(values) for section, values in table.items()}
    if "method" in own_table and tuple(methods) != (method,):
        accepted = method_settings(method) or frozenset()
        own_table["method"] = {k: v for k, v in own_table["method"].items() if k in accepted}
    return own_table


def option(config: Config, name: str) -> Any:
    """One of the method's own settings, None where it has none of that name."""
    accepted = method_settings(config.run.method)
    return getattr(config.method, name) if accepted is None or name in accepted else None


FREE = {"run.method", "run.rounds", "data.alpha", "method.beta"}  # in which runs of the paper differ


def trains_as_published(config: Config) -> bool:
    """A run of any length, alpha, beta and method, but otherwise the paper's experiment."""
    if config.data.dataset not in PAPER_SETS:
        return False
    paper = paper_config(config.data.dataset, config.run.method)
    return not set(differences([config.as_dict(), paper.as_dict()])) - FREE
