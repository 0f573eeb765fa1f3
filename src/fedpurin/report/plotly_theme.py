"""Plotly's look in the page, light and dark."""

from __future__ import annotations

from typing import Any

from fedpurin.report.style import SEQUENTIAL

Spec = dict[str, Any]  # a piece of plotly's JSON

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
THEMES = {
    "light": {"ink": "#1c2733", "soft": "#5b6775", "grid": "#e3e8ee", "zero": "#9aa7b4", "card": "#ffffff"},
    "dark": {"ink": "#e8edf3", "soft": "#a3afbd", "grid": "#303a47", "zero": "#6c7a89", "card": "#1b2330"},
}
CLEAR = "rgba(0,0,0,0)"
# Above the plot, as wide as the whole figure: a narrow phone needs the room beside the axis labels too.
LEGEND = {
    **{"orientation": "h", "xref": "container", "yref": "container", "traceorder": "normal"},
    **{"x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "font": {"size": 12}, "itemwidth": 36},
}
# Thin, above the plot: it takes no width on a phone.
COLOR_BAR = {
    **{"orientation": "h", "thickness": 9, "len": 0.9, "outlinewidth": 0, "tickfont": {"size": 11}},
    **{"x": 0.5, "xanchor": "center", "y": 1, "yanchor": "bottom", "ypad": 5},
}


def template(theme: str) -> Spec:
    """The plotly template of the light or the dark page."""
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
