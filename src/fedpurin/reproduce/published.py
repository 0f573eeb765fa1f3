"""The paper's printed numbers, read from paper.toml beside this file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Paper:
    table: dict[str, Any]

    @classmethod
    @lru_cache
    def load(cls) -> Paper:
        return cls(tomllib.loads((files("fedpurin.reproduce") / "paper.toml").read_text("utf-8")))

    @property
    def columns(self) -> list[tuple[str, float]]:
        return [(str(dataset), float(alpha)) for dataset, alpha in self.table["columns"]]

    def number(self, kind: str, row: str, dataset: str, alpha: float) -> float | None:
        """A cell of `accuracy`, `deviation` or `terms`; None where the paper has none."""
        values = self.table[kind].get(row)
        if values is None or (dataset, alpha) not in self.columns:
            return None
        return float(values[self.columns.index((dataset, alpha))])

    def traffic(self, dataset: str, alpha: float, method: str) -> list[float] | None:
        """MiB: up before beta, up after, down before, down after; known for one alpha."""
        values = self.table["communication"].get(dataset, {}).get(method) if alpha == 0.1 else None
        return None if values is None else [float(v) for v in values]

    def first_rounds(self, method: str) -> list[float]:
        return [float(v) for v in self.table["first-rounds"].get(method, [])]

    def saving(self, model: str) -> tuple[float, float]:
        up, down = self.table["saving"][model]
        return float(up), float(down)
