"""Which cells each table and figure needs: rows (method and options) x columns (data set, alpha) x seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpurin.config import Config
from fedpurin.reproduce.scales import Request, option
from fedpurin.runs.same_setting import Cell, method_label

Column = tuple[str, float]


@dataclass(frozen=True)
class Variant:
    id: str
    label: str
    method: str
    table: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    beta_share: float | None = None  # of the rounds, in place of the paper's


@dataclass(frozen=True)
class Recipe:
    name: str
    rows: tuple[Variant, ...]
    datasets: tuple[str, ...] | None = None  # None: all of the scale
    alphas: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    published: str = ""  # the paper's table with these rows
    lengths: Mapping[str, Any] = field(default_factory=dict)  # by scale, where --rounds does not say it

    def chosen_rows(self, request: Request) -> list[Variant]:
        return [row for row in self.rows if not request.methods or row.method in request.methods]

    def row(self, id: str) -> Variant:
        return next(row for row in self.rows if row.id == id)

    def columns(self, request: Request) -> list[Column]:
        return [
            (dataset, alpha)
            for dataset in request.pick_datasets(self.datasets)
            for alpha in request.pick_alphas(dataset, self.alphas)
        ]

    def seeds_of(self, request: Request) -> list[int]:
        return list(request.seeds or self.seeds or request.pick_seeds())

    def config(self, request: Request, row: Variant, column: Column, seed: int) -> Config:
        length = self.lengths.get(request.scale, {}) if request.rounds is None else {}
        config = request.config(*column, seed, row.method, {**row.table, **length})
        if row.beta_share is None:
            return config
        return config.updated({"method": {"beta": max(1, round(row.beta_share * config.run.rounds))}})

    def beta(self, request: Request, rows: Sequence[Variant], column: Column) -> int | None:
        """That of the last of these rows that has one."""
        betas = [option(self.config(request, row, column, 1), "beta") for row in rows]
        return next((beta for beta in reversed(betas) if beta is not None), None)

    def cells(self, request: Request) -> list[Cell]:
        """Seed by seed, so that a first result for every row comes early."""
        return [
            Cell(self.config(request, row, column, seed), row.label)
            for seed in self.seeds_of(request)
            for column in self.columns(request)
            for row in self.chosen_rows(request)
        ]


SHORT_FOR_BYTES = {
    "quick": {
        "run": {"rounds": 3},
        "data": {"train_samples": 100, "test_samples": 20},
        "train": {"epochs": 2},
        "method": {"beta": 2},
    }
}
"""Three rounds, the third after beta, of two local steps each: bytes need no accuracy."""

FIFTEEN_OF_SIXTY = {scale: {"run": {"rounds": 15}, "method": {"beta": 30}} for scale in ("paper", "quick")}
"""The first quarter of a run with T = 60 at the paper's share of beta."""


def _purin(id: str, label: str, **options: Any) -> Variant:
    return Variant(id, label, "fedpurin", {"method": options} if options else {})


PAPER_METHODS = ("separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin")
METHODS = tuple(Variant(name, method_label(name), name) for name in PAPER_METHODS)

TERMS = (
    _purin("delta", "delta", score="delta"),
    _purin("gradient", "gradient"),
    _purin("delta-hessian", "delta + quadratic term", score="delta", hessian=True),
    _purin("gradient-hessian", "gradient + quadratic term", hessian=True),
)

CONTROLS = (
    _purin("gradient", "gradient (FedPURIN)"),
    _purin("delta", "delta", score="delta"),
    _purin("magnitude", "magnitude", score="magnitude"),
    _purin("random", "random", score="random"),
)

NORM = (
    _purin("no", "without BN", score="delta"),
    _purin("whole", "with BN, sent whole", score="delta", exchange_norm="whole"),
    _purin("selected", "with BN, selected by score", score="delta", exchange_norm="selected"),
)

TAUS = tuple(_purin(f"tau-{tau}", f"τ = {tau}", score="delta", tau=tau) for tau in (0.2, 0.3, 0.4, 0.5, 0.6))


def _switch(id: str, label: str, **sections: dict[str, Any]) -> Variant:
    """One setting away from our own defaults, which keep the gradient in float32 whatever the preset says."""
    method = {"gradient_dtype": "float32"} | sections.pop("method", {})
    return Variant(id, label, "fedpurin", {"method": method, **sections})


SWITCHES = (
    _switch("default", "FedPURIN by default"),
    _switch("float16", "`method.gradient_dtype = float16`", method={"gradient_dtype": "float16"}),
    _switch("floor", "`method.floor = -1` (none)", method={"floor": -1.0}),
    _switch("support", "`method.average = support`", method={"average": "support"}),
    _switch("local", "`method.noncritical = local`", method={"noncritical": "local"}),
    _switch("disjoint", "`data.partition = dirichlet-disjoint`", data={"partition": "dirichlet-disjoint"}),
    _switch("momentum", "`train.momentum = 0`", train={"momentum": 0.0}),
    _switch("delta", "`method.score = delta`", method={"score": "delta"}),
    _switch("hessian", "`method.hessian = true`", method={"hessian": True}),
)


BETAS = (
    _purin("half", "FedPURIN, β = T / 2 (the paper's share)"),
    Variant("sixth", "FedPURIN, β = T / 6", "fedpurin", beta_share=1 / 6),
    _purin("none", "FedPURIN, β = 1 (no groups)", beta=1),
    Variant("fedcac-half", "FedCAC, β = T / 2 (the paper's share)", "fedcac"),
    Variant("fedcac-none", "FedCAC, β = 1 (no groups)", "fedcac", {"method": {"beta": 1}}),
)

SILENCE = 20  # rounds together, then everybody alone
WORTH = (
    Variant("fedpurin", "FedPURIN", "fedpurin"),
    Variant("fedbn", "FedBN", "fedbn"),
    Variant("fedbn-int8", "FedBN, int8", "fedbn", {"wire": {"values": "int8"}}),
    Variant(
        "fedbn-silent", f"FedBN, alone after round {SILENCE}", "fedbn", {"method": {"silent_after": SILENCE}}
    ),
    *(Variant(name, method_label(name), name) for name in ("fedcac", "fedavg", "fedfrugal", "separate")),
)


def _values(method: str, values: str, label: str = "", **wire: Any) -> Variant:
    table = {"wire": {"values": values, **wire}}
    return Variant(f"{method}-{values}{label}", f"{method_label(method)}, {values}{label}", method, table)


VALUES = (
    *(_values("fedpurin", values) for values in ("float32", "float16", "bfloat16", "int8")),
    _values("fedpurin", "int8", " with feedback", feedback=True),
    *(_values("fedavg", values) for values in ("float32", "float16", "bfloat16", "int8")),
)

COMMUNICATION = tuple(row for row in METHODS if row.id in {"fedavg", "fedcac", "fedpurin"})

_CIFAR = (("cifar-10",), (0.5,))

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("table-accuracy", METHODS, published="accuracy"),
        Recipe("table-terms", TERMS, published="terms"),  # gradient or delta, with the quadratic term or not
        Recipe("table-communication", COMMUNICATION, alphas=(0.1,), lengths=SHORT_FOR_BYTES),
        Recipe("table-controls", CONTROLS, *_CIFAR),  # does the score matter?
        Recipe("table-switches", SWITCHES, *_CIFAR),  # effect of each switch of docs/fidelity.md
        Recipe("table-beta", BETAS, *_CIFAR),  # do groups help?
        Recipe("table-worth", WORTH, *_CIFAR),  # is FedPURIN worth its bytes?
        Recipe("figure-worth", WORTH, *_CIFAR),
        Recipe("table-values", VALUES, *_CIFAR, (1,), lengths=FIFTEEN_OF_SIXTY),
        Recipe("table-paired", METHODS),
        Recipe("table-windows", METHODS),
        Recipe("figure-bars", METHODS, published="accuracy"),
        Recipe("figure-rounds", METHODS, published="accuracy"),
        Recipe("figure-bytes", COMMUNICATION, alphas=(0.1,), lengths=SHORT_FOR_BYTES),
        Recipe("figure-bn", NORM, ("cifar-10",)),
        Recipe("figure-tau", TAUS, ("cifar-10",)),
        Recipe("figure-coverage", (TERMS[0],), *_CIFAR, (1,)),
        Recipe("check-norms", METHODS),
    )
}
