"""Numbers that people read: shares, sizes, durations, and what a run measures.

That is accuracy in percent, R² as a number, or whatever its metric is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpurin.task import METRIC_LABELS, named_metric

NBSP = "\u00a0"  # keeps a number and its unit on one line


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{NBSP}%"


def mib(value: float) -> str:
    """A size that a person can read: bytes below a tenth of a MiB."""
    if value == 0:
        return f"0{NBSP}MiB"
    if value < 0.1:
        return f"{value * 1024:.1f}{NBSP}KiB"
    return f"{value:,.2f}{NBSP}MiB" if value < 1000 else f"{value / 1024:,.2f}{NBSP}GiB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}{NBSP}s"
    if seconds < 3600:
        return f"{seconds / 60:.1f}{NBSP}min"
    return f"{seconds / 3600:.1f}{NBSP}h"


@dataclass(frozen=True)
class Measure:
    name: str
    share: bool  # of a whole: shown in percent

    @property
    def hover(self) -> str:
        return ".1%" if self.share else ".3f"

    @property
    def scale(self) -> int:
        """Gains are counted in percentage points where the measure is a share."""
        return 100 if self.share else 1

    def words(self, text: str) -> str:
        """A text that speaks of accuracy, with the measure's own name."""
        return text.replace("accuracy", self.name).replace("Accuracy", self.name[0].upper() + self.name[1:])

    def text(self, value: float, digits: int = 1) -> str:
        return percent(value, digits) if self.share else f"{value:.{digits + 2}f}".replace("-", "−")

    def cell(self, value: float) -> str:
        """In a table whose caption names the unit."""
        return f"{self.scale * value:.{2 if self.share else 3}f}"

    def gain(self, value: float) -> str:
        """Of a difference times `scale`, with a sign and a true minus."""
        text = f"{value:+.1f}{NBSP}points" if self.share else f"{value:+.3f}"
        return text.replace("-", "−")


def measure_of(configs: Iterable[Mapping[str, Any]]) -> Measure:
    """That of all of these runs; where they differ, or for a function of the user's, "metric"."""
    trains = [config.get("train", {}) for config in configs]
    names = {named_metric(str(t.get("loss", "cross_entropy")), str(t.get("metric", "auto"))) for t in trains}
    name = names.pop() if len(names) == 1 else "python"
    return Measure(METRIC_LABELS.get(name, "metric"), name.endswith("accuracy"))
