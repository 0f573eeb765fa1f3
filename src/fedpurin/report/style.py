"""One look for all figures: colours that stay with their method, safe for colour-blind eyes.

The palette is Okabe and Ito's. Colour is never the only sign: each method also has its own dash and marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedpurin.errors import ConfigError


@dataclass(frozen=True)
class Look:
    label: str
    color: str
    dash: str  # plotly's name
    marker: str  # plotly's symbol
    order: int = 100


_SPARE_COLORS = ("#8c564b", "#6a51a3", "#17a2a2", "#a6761d")

# plotly's dashes and markers in matplotlib
DASHES: dict[str, Any] = {
    "solid": "-",
    "dot": ":",
    "dash": "--",
    "dashdot": "-.",
    "longdash": (0, (8, 3)),
    "longdashdot": (0, (8, 3, 1, 3)),
    "5px,2px": (0, (5, 2)),
}
MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "diamond-tall": "d",
    "x": "x",
    "triangle-up": "^",
    "triangle-down": "v",
    "pentagon": "p",
    "star": "*",
}


@cache
def look(method: str) -> Look:
    """The method's own look; one that is not installed here always gets the same spare colour."""
    from fedpurin.methods import find_method  # brings torch

    spare = _SPARE_COLORS[sum(method.encode()) % len(_SPARE_COLORS)]
    try:
        kind = find_method(method)
    except ConfigError:
        return Look(method, spare, "solid", "star")
    return Look(kind.label or kind.name or method, kind.color or spare, kind.dash, kind.marker, kind.order)


def __getattr__(name: str) -> Any:
    """METHOD_LABELS, METHOD_COLORS, METHOD_MARKS: tables of the methods that come with fedpurin."""
    from fedpurin.methods import METHODS

    tables: dict[str, Callable[[Look], Any]] = {
        "METHOD_LABELS": lambda a: a.label,
        "METHOD_COLORS": lambda a: a.color,
        "METHOD_MARKS": lambda a: (a.dash, a.marker, DASHES[a.dash], MARKERS[a.marker]),
    }
    if name not in tables:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return {method: tables[name](look(method)) for method in METHODS}


def table_place(method: str) -> tuple[int, str]:
    """Where a method stands in tables and legends."""
    return look(method).order, method


SECTION_COLORS = {"values": "#0072b2", "mask": "#e69f00", "header": "#009e73", "meta": "#cc79a7"}
SECTION_LABELS = {"values": "values", "mask": "mask", "header": "header", "meta": "metrics"}
HURT_COLOR = "#d55e00"
PAPER_COLOR = "#f0e442"  # the paper's counting rule

# One hue in even steps of lightness: readable without colour vision and in grey print.
SEQUENTIAL = {
    "light": ("#eef3f8", "#a9cbe6", "#4c9ace", "#0072b2", "#003a5c"),
    "dark": ("#232d3b", "#1f4f73", "#2b7cb0", "#73b9e6", "#d7eeff"),
}

MOMENT_LABELS = {"trained": "after training", "upload": "as uploaded", "merged": "after merging"}


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """Figures for paper and talk: readable labels, light grid, text that stays text in SVG and PDF."""
    from fedpurin.report.extras import need_matplotlib

    need_matplotlib()
    from matplotlib import style

    with style.context(Path(__file__).parent / "templates" / "paper.mplstyle"):
        yield
