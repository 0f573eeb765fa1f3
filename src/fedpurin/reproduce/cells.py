"""A cell is one run of one configuration; its key depends only on what changes the numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedpurin.config import Config

# Where and how fast something runs does not change its bytes.
IRRELEVANT = {
    "run": {"engine", "workers", "device", "share_metrics", "checkpoint_every"},
    "data": {"dir"},
}
METHOD_OPTIONS: dict[str, set[str]] = {
    "separate": set(),
    "fedavg": set(),
    "fedper": set(),
    "fedbn": set(),
    "pfedsd": {"distill", "temperature"},
    "fedcac": {"tau", "beta"},
    "fedpurin": {
        "tau",
        "beta",
        "score",
        "hessian",
        "gradient_dtype",
        "exchange_norm",
        "noncritical",
        "average",
        "floor",
    },
}


@dataclass(frozen=True)
class Cell:
    """One run that a table or figure needs. `label` names its row or line."""

    config: Config
    label: str = ""

    @property
    def key(self) -> str:
        return cell_key(self.config)


def relevant(config: Config) -> dict[str, dict[str, Any]]:
    """The settings that decide the result, without those this method never looks at."""
    table = config.as_dict()
    for section, names in IRRELEVANT.items():
        for name in names:
            table[section].pop(name)
    options = METHOD_OPTIONS[config.run.method]
    method = {name: value for name, value in table["method"].items() if name in options}
    if method.get("floor") == Config().method.floor:
        method.pop("floor")  # it came later than the first records
    if method.get("score", "gradient") != "gradient":
        method.pop("gradient_dtype")
    if method.get("score") in {"magnitude", "random"}:
        method.pop("hessian")
    table["method"] = method
    if config.data.partition != "classes":
        table["data"].pop("classes_per_client")
    if config.data.partition in {"classes", "iid"}:
        table["data"].pop("alpha")
    return table


def cell_key(config: Config) -> str:
    """Readable, and the same for the same numbers: FedAvg's key does not depend on beta."""
    text = json.dumps(relevant(config), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    dataset = config.data.dataset.replace(":", "-").replace("/", "-")
    run = config.run
    return f"{run.method}-{dataset}-a{config.data.alpha:g}-s{run.seed}-t{run.rounds}-{digest}"


def config_of(table: Mapping[str, Any]) -> Config:
    """The configuration a record was made with; settings that came later have their defaults."""
    return Config().updated(table)
