"""The paper's printed numbers, read from experiments/paper.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin.errors import DataError


@dataclass(frozen=True)
class Paper:
    table: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> Paper:
        file = folder / "paper.toml"
        try:
            return cls(tomllib.loads(file.read_text("utf-8")))
        except (OSError, ValueError) as problem:
            raise DataError(
                f"cannot read the paper's numbers from {file} ({problem}); "
                "run inside a checkout of the project, or name its folder: --experiments DIR"
            ) from problem

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


def experiments_folder(named: str | None) -> Path:
    """--experiments, else ./experiments, else that of the checkout this package was installed from."""
    if named:
        return Path(named)
    here = Path("experiments")
    checkout = Path(__file__).resolve().parents[3] / "experiments"
    return here if (here / "paper.toml").exists() or not checkout.is_dir() else checkout
