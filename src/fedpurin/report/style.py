"""One look for all figures: colours that stay with their method, safe for colour-blind eyes.

The palette is Okabe and Ito's. Colour is never the only sign: each method also has its own dash and marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

METHODS = ("separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin")

METHOD_LABELS = {
    "separate": "Separate",
    "fedavg": "FedAvg",
    "fedper": "FedPer",
    "fedbn": "FedBN",
    "pfedsd": "pFedSD",
    "fedcac": "FedCAC",
    "fedpurin": "FedPURIN",
}

METHOD_COLORS = {
    "separate": "#7f7f7f",
    "fedavg": "#56b4e9",
    "fedper": "#cc79a7",
    "fedbn": "#009e73",
    "pfedsd": "#e69f00",
    "fedcac": "#0072b2",
    "fedpurin": "#d55e00",
}

# plotly dash, plotly marker, matplotlib dash, matplotlib marker
METHOD_MARKS = {
    "separate": ("dot", "x", ":", "x"),
    "fedavg": ("dash", "square", "--", "s"),
    "fedper": ("dashdot", "diamond", "-.", "D"),
    "fedbn": ("longdash", "triangle-up", (0, (8, 3)), "^"),
    "pfedsd": ("longdashdot", "triangle-down", (0, (8, 3, 1, 3)), "v"),
    "fedcac": ("5px,2px", "pentagon", (0, (5, 2)), "p"),
    "fedpurin": ("solid", "circle", "-", "o"),
}

SECTION_COLORS = {"values": "#0072b2", "mask": "#e69f00", "header": "#009e73", "meta": "#cc79a7"}
SECTION_LABELS = {"values": "values", "mask": "mask", "header": "header", "meta": "metrics"}

# Classes beyond these share colours; charts that need more than eight use the sequential scale instead.
CATEGORY_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
HURT_COLOR = "#d55e00"
GAIN_COLOR = "#0072b2"

# One hue in even steps of lightness: readable without colour vision and in grey print.
SEQUENTIAL = {
    "light": ("#eef3f8", "#a9cbe6", "#4c9ace", "#0072b2", "#003a5c"),
    "dark": ("#232d3b", "#1f4f73", "#2b7cb0", "#73b9e6", "#d7eeff"),
}

MOMENT_LABELS = {"trained": "after training", "upload": "as uploaded", "merged": "after merging"}

_EXTRA_COLORS = ("#8c564b", "#6a51a3", "#17a2a2", "#a6761d")


def method_label(method: str) -> str:
    return METHOD_LABELS.get(method, method)


def method_color(method: str) -> str:
    """The method's own colour; an unknown method gets one of four spare colours, always the same one."""
    return METHOD_COLORS.get(method) or _EXTRA_COLORS[sum(method.encode()) % len(_EXTRA_COLORS)]


def method_marks(method: str) -> tuple[str, str, Any, str]:
    return METHOD_MARKS.get(method, ("solid", "star", "-", "*"))


def fade(color: str, alpha: float) -> str:
    """A hex colour as rgba(), for bands."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """Figures for paper and talk: readable labels, light grid, text that stays text in SVG and PDF."""
    from fedpurin.report.extras import need_matplotlib

    matplotlib = need_matplotlib()
    settings = {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "figure.figsize": (7.2, 4.2),
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 200,
        "svg.fonttype": "none",
        "svg.hashsalt": "fedpurin",
        "pdf.fonttype": 42,
    }
    with matplotlib.rc_context(settings):
        yield
