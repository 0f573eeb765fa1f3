"""What a chart of the report is made of, and the plotly look shared by all of them.

A chart has one view per choice of its controls: every picture is computed in Python, and the page only
swaps them. Numbers go out as float32, which plotly packs tightly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from fedpurin.report.extras import need_plotly
from fedpurin.report.style import SEQUENTIAL

NBSP = "\u00a0"  # keeps a number and its unit on one line
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
THEMES = {
    "light": {"ink": "#1c2733", "soft": "#5b6775", "grid": "#e3e8ee", "zero": "#9aa7b4", "card": "#ffffff"},
    "dark": {"ink": "#e8edf3", "soft": "#a3afbd", "grid": "#303a47", "zero": "#6c7a89", "card": "#1b2330"},
}
LABELLED = 40  # more categories than this are named at every tenth part

# Above the plot, as wide as the whole figure: a narrow phone needs the room beside the axis labels too.
LEGEND = {
    "orientation": "h",
    "xref": "container",
    "yref": "container",
    "x": 0,
    "xanchor": "left",
    "y": 1,
    "yanchor": "top",
    "font": {"size": 12},
    "itemwidth": 36,
}


@dataclass(frozen=True)
class Control:
    """A choice above a chart. The name "moment" is shared by the whole page."""

    name: str
    label: str
    options: dict[str, str]  # key -> text


@dataclass(frozen=True)
class View:
    """The picture for one choice: one or two figures side by side, and a sentence on what to see."""

    figures: list[Any]
    sentence: str


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    views: dict[tuple[str, ...], View]  # one key per combination of the controls, in their order
    controls: list[Control] = field(default_factory=list)
    note: str = ""  # definitions, and what was sampled or binned
    slider: str = ""  # label of the slider over the figures' frames


@dataclass(frozen=True)
class Missing:
    """A chart that is left out, and why."""

    title: str
    reason: str


def small(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)


def safe(text: str) -> str:
    """Text from a run directory inside plotly, which reads a subset of HTML."""
    return escape(str(text), quote=False)


def figure(height: int, x: str = "", y: str = "", **layout: Any) -> Any:
    """An empty figure in the house look."""
    go = need_plotly()
    made = go.Figure(layout={"template": template("light")})
    made.update_layout(
        height=height,
        margin={"l": 12, "r": 16, "t": 12, "b": 12},
        legend=LEGEND,
        hovermode="closest",
        uirevision="kept",
        **layout,
    )
    made.update_xaxes(title={"text": x}, automargin=True)
    made.update_yaxes(title={"text": y}, automargin=True)
    return made


def template(theme: str) -> dict[str, Any]:
    """The plotly template of the light or the dark page."""
    tone = THEMES[theme]
    scale = [[i / 4, color] for i, color in enumerate(SEQUENTIAL[theme])]
    axis = {
        "gridcolor": tone["grid"],
        "linecolor": tone["zero"],
        "zerolinecolor": tone["grid"],
        "ticks": "",
        "title": {"font": {"size": 13, "color": tone["soft"]}, "standoff": 8},
        "tickfont": {"size": 12, "color": tone["soft"]},
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": tone["ink"]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": tone["card"],
                "bordercolor": tone["zero"],
                "font": {"family": FONT, "color": tone["ink"], "size": 13},
            },
            "annotationdefaults": {"font": {"color": tone["soft"]}},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": tone["soft"], "activecolor": tone["ink"]},
            # Heat maps take their colours from here, so they follow the theme. One scale for all: plotly
            # would change to another when a value is negative, and an overlap can be.
            "colorscale": dict.fromkeys(("sequential", "sequentialminus", "diverging"), scale),
        }
    }


def colorbar(tickformat: str = "") -> dict[str, Any]:
    """A thin bar above the plot: it takes no width on a phone. Name it with `name_colors`."""
    return {
        "orientation": "h",
        "thickness": 9,
        "len": 0.9,
        "x": 0.5,
        "xanchor": "center",
        "y": 1,
        "yanchor": "bottom",
        "ypad": 5,
        "tickformat": tickformat,
        "outlinewidth": 0,
        "tickfont": {"size": 11},
    }


def name_colors(made: Any, text: str) -> None:
    """What the colours of a heat map mean, and its columns: the x axis has no title.

    Plotly moves the title of an x axis into the tick labels when a colour bar lies on its side.
    """
    made.add_annotation(
        x=0.5, y=1, xref="paper", yref="paper", yanchor="bottom", yshift=37, text=text, showarrow=False
    )
    made.update_layout(margin={"t": 66})
    made.update_xaxes(title={"text": ""})


def category_axis(names: list[str]) -> dict[str, Any]:
    """Plotly thins out a few dozen labels by itself; of more, every tenth part is named."""
    if len(names) <= LABELLED:
        return {"type": "category"}
    return {"type": "category", "tickvals": names[:: max(1, len(names) // 10)], "tickangle": 0}


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{NBSP}%"


def points(value: float) -> str:
    """Percentage points with a sign and a true minus."""
    return f"{value:+.1f}{NBSP}points".replace("-", "−")


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
