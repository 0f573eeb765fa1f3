"""How large an experiment is: the paper's own size, fewer rounds of it, or minutes on a laptop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedpurin.config import Config
from fedpurin.errors import ConfigError

PRESETS = {
    "fashion-mnist": "paper-fashion-mnist",
    "cifar-10": "paper-cifar10",
    "cifar-100": "paper-cifar100",
    "fashion-mnist-mini": "quickstart",
}
ALPHAS = {
    "fashion-mnist": (0.1, 0.5, 1.0),
    "cifar-10": (0.1, 0.5, 1.0),
    "cifar-100": (0.01, 0.1, 0.5),
    "fashion-mnist-mini": (0.1, 0.5, 1.0),
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

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ConfigError(f"--scale {self.scale!r} is unknown; choose one of {', '.join(SCALES)}")
        for dataset in self.datasets:
            if dataset not in SCALES[self.scale][0]:
                known = ", ".join(SCALES[self.scale][0])
                raise ConfigError(f"--scale {self.scale} has no data set {dataset!r}; it has {known}")

    def pick_datasets(self, offered: Iterable[str] | None = None) -> list[str]:
        """The data sets of this scale; of those a recipe offers, the ones asked for."""
        here = SCALES[self.scale][0]
        usual = [d for d in here if offered is None or d in set(offered) or self.scale == "mini"]
        return [d for d in here if d in self.datasets] if self.datasets else usual

    def pick_alphas(self, dataset: str, offered: Iterable[float] | None = None) -> list[float]:
        return list(self.alphas or offered or ALPHAS[dataset])

    def pick_methods(self, offered: Iterable[str]) -> list[str]:
        return [m for m in offered if not self.methods or m in self.methods]

    def pick_seeds(self) -> list[int]:
        return list(self.seeds or SCALES[self.scale][1])

    def config(
        self, dataset: str, alpha: float, seed: int, method: str, table: Mapping[str, Any] | None = None
    ) -> Config:
        """The preset at this scale, then the recipe's `table`, then --set."""
        base = Config.preset(PRESETS[dataset])
        rounds = self.rounds or base.run.rounds // (QUICK_SHARE if self.scale == "quick" else 1)
        beta = max(1, round(base.method.beta * rounds / base.run.rounds))
        config = base.updated(
            {
                "run": {"method": method, "seed": seed, "rounds": rounds},
                "data": {"alpha": alpha},
                "method": {"beta": beta},
            }
        )
        return config.updated(table or {}).updated(self.changes)


def trains_as_published(config: Config) -> bool:
    """A run of any length, beta and method, but otherwise the paper's experiment."""
    if config.data.dataset not in PAPER_SETS:
        return False
    paper = Config.preset(PRESETS[config.data.dataset])
    paper = replace(paper, method=replace(paper.method, beta=config.method.beta))
    return (config.method, config.train, config.wire) == (paper.method, paper.train, paper.wire) and (
        (config.run.clients, config.data.train_samples) == (paper.run.clients, paper.data.train_samples)
    )
