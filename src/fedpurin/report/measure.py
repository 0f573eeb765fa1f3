"""What the numbers of a run measure: accuracy in percent, R² as a number, or whatever its metric is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpurin.report.units import percent, points
from fedpurin.task import METRIC_LABELS, named_metric


@dataclass(frozen=True)
class Measure:
    name: str
    share: bool  # of a whole: shown in percent

    @property
    def kind(self) -> str:
        """Of an axis."""
        return "share" if self.share else "number"

    @property
    def hover(self) -> str:
        return ".1%" if self.share else ".3f"

    def words(self, text: str) -> str:
        """A text that speaks of accuracy, with the measure's own name."""
        return text.replace("accuracy", self.name).replace("Accuracy", self.name[0].upper() + self.name[1:])

    def text(self, value: float, digits: int = 1) -> str:
        return percent(value, digits) if self.share else f"{value:.{digits + 2}f}".replace("-", "−")

    def cell(self, value: float) -> str:
        """In a table whose caption names the unit."""
        return f"{self.scale * value:.{2 if self.share else 3}f}"

    @property
    def title(self) -> str:
        """Of such a table: "Accuracy in percent"."""
        return self.words("Accuracy") + (" in percent" if self.share else "")

    @property
    def scale(self) -> int:
        """Gains are counted in percentage points where the measure is a share."""
        return 100 if self.share else 1

    @property
    def unit(self) -> str:
        return "points" if self.share else self.name

    def gain(self, value: float) -> str:
        """Of a difference times `scale`."""
        return points(value) if self.share else f"{value:+.3f}".replace("-", "−")


def measure_of(configs: Iterable[Mapping[str, Any]]) -> Measure:
    """That of all of these runs; where they differ, or for a function of the user's, "metric"."""
    names = {_named(config.get("train", {})) for config in configs}
    name = names.pop() if len(names) == 1 else "python"
    return Measure(METRIC_LABELS.get(name, "metric"), name.endswith("accuracy"))


def _named(train: Mapping[str, Any]) -> str:
    return named_metric(str(train.get("loss", "cross_entropy")), str(train.get("metric", "auto")))
