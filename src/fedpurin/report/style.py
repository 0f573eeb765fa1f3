"""One look for all figures: colours that stay with their method, safe for colour-blind eyes.

The palette is Okabe and Ito's. Colour is never the only sign: each method also has its own dash and marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedpurin.errors import ConfigError
from fedpurin.methods import METHODS, find_method
from fedpurin.report.extras import need_matplotlib

_SPARE_COLORS = ("#8c564b", "#6a51a3", "#17a2a2", "#a6761d")
SECTION_COLORS = {"values": "#0072b2", "mask": "#e69f00", "header": "#009e73", "meta": "#cc79a7"}
SECTION_LABELS = {"values": "values", "mask": "mask", "header": "header", "meta": "metrics"}
MOMENT_LABELS = {"trained": "after training", "upload": "as uploaded", "merged": "after merging"}
HURT_COLOR = "#d55e00"
PAPER_COLOR = "#f0e442"  # the paper's counting rule
# One hue in even steps of lightness: readable without colour vision and in grey print.
SEQUENTIAL = {
    "light": ("#eef3f8", "#a9cbe6", "#4c9ace", "#0072b2", "#003a5c"),
    "dark": ("#232d3b", "#1f4f73", "#2b7cb0", "#73b9e6", "#d7eeff"),
}
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


@dataclass(frozen=True)
class Look:
    label: str
    color: str
    dash: str  # plotly's name
    marker: str  # plotly's symbol
    order: int = 100  # in tables and legends


@cache
def look(method: str) -> Look:
    """The method's own look; one that is not installed here always gets the same spare colour."""
    spare = _SPARE_COLORS[sum(method.encode()) % len(_SPARE_COLORS)]
    try:
        kind = find_method(method)
    except ConfigError:
        return Look(method, spare, "solid", "star")
    return Look(kind.label or kind.name or method, kind.color or spare, kind.dash, kind.marker, kind.order)


# Tables of the methods that come with fedpurin.
_LOOKS = {method: look(method) for method in METHODS}
METHOD_LABELS = {method: own.label for method, own in _LOOKS.items()}
METHOD_COLORS = {method: own.color for method, own in _LOOKS.items()}
METHOD_MARKS = {
    method: (own.dash, own.marker, DASHES[own.dash], MARKERS[own.marker]) for method, own in _LOOKS.items()
}


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """Figures for paper and talk: readable labels, light grid, text that stays text in SVG and PDF."""
    need_matplotlib()
    from matplotlib import style

    with style.context(Path(__file__).parent / "templates" / "paper.mplstyle"):
        yield


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
THEMES = {
    "light": {"ink": "#1c2733", "soft": "#5b6775", "grid": "#e3e8ee", "zero": "#9aa7b4", "card": "#ffffff"},
    "dark": {"ink": "#e8edf3", "soft": "#a3afbd", "grid": "#303a47", "zero": "#6c7a89", "card": "#1b2330"},
}
CLEAR = "rgba(0,0,0,0)"


def plotly_template(theme: str) -> dict[str, Any]:
    """Of the light or the dark page."""
    tone = THEMES[theme]
    scale = [[i / 4, color] for i, color in enumerate(SEQUENTIAL[theme])]
    font = {"family": FONT, "size": 13, "color": tone["ink"]}
    axis = {
        **{"gridcolor": tone["grid"], "linecolor": tone["zero"], "zerolinecolor": tone["zero"], "ticks": ""},
        "title": {"font": {"size": 13, "color": tone["soft"]}, "standoff": 8},
        "tickfont": {"size": 12, "color": tone["soft"]},
    }
    layout = {
        **{"font": font, "paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "xaxis": axis, "yaxis": axis},
        "hoverlabel": {"bgcolor": tone["card"], "bordercolor": tone["zero"], "font": font},
        "annotationdefaults": {"font": {"color": tone["soft"]}},
        "modebar": {"bgcolor": CLEAR, "color": tone["soft"], "activecolor": tone["ink"]},
        # Heat maps take their colours from here, so they follow the theme. One scale for all: plotly
        # would change to another when a value is negative, and an overlap can be.
        "colorscale": dict.fromkeys(("sequential", "sequentialminus", "diverging"), scale),
    }
    return {"layout": layout}
