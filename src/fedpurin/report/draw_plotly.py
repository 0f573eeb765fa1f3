"""Pictures drawn with plotly: for the page, light and dark, and for notebooks.

Numbers go out in narrow types (float32, int16), which plotly packs tightly.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.report.extras import need
from fedpurin.report.marks import Axis, Band, Bars, Dots, Heat, Line, Mark, Panel, Picture, Shade, Text
from fedpurin.report.style import plotly_template

Spec = dict[str, Any]  # a piece of plotly's JSON

FEW_ROUNDS = 30  # up to so many, the points of a line are marked
GAP = 0.12  # between panels
MAX_COLUMN_NAMES = 32  # the page shows fewer where it is narrow
ROW_NAME_HEIGHT = 16  # pixels
MAX_ROW_NAME = 32  # letters in a line
CHANGING: dict[type, tuple[str, ...]] = {Heat: ("z",), Line: ("x", "y"), Dots: ("customdata", "marker")}
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


def draw(picture: Picture) -> Any:
    """A plotly Figure in the light template; frames hold only what changes from round to round."""
    data: list[Spec] = []
    layout = _layout(picture)
    for number, panel in enumerate(picture.panels):
        suffix = str(number + 1) if number else ""
        place: Spec = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        place |= {"showlegend": False} if number else {}
        for mark in panel.marks:
            if isinstance(mark, Text):
                text = {"x": mark.x, "y": mark.y, "text": safe(mark.text), "xanchor": mark.side}
                layout["annotations"].append({**text, "showarrow": False})
            elif isinstance(mark, Shade):
                corners = {"x0": mark.left, "x1": mark.right, "y0": 0, "y1": 1, "yref": "paper"}
                look = {"fillcolor": fade(mark.color, 0.07), "line": {"width": 0}, "layer": "below"}
                layout["shapes"].append({"type": "rect", **corners, **look})
            else:
                data.append({**TRACES[type(mark)](mark, panel), **place})
        layout |= _axes(panel, suffix, number, picture)
        _write_around(layout, panel)
    frames = []
    for t, marks in picture.frames.items():
        changes = [_changes(mark, picture.panels[0]) for mark in marks]
        frames.append({"name": str(t), "data": changes, "traces": [*range(len(marks))]})
    return need("plotly.graph_objects").Figure({"data": data, "layout": layout, "frames": frames})


def _layout(picture: Picture) -> Spec:
    marks = [mark for panel in picture.panels for mark in panel.marks]
    heat = any(isinstance(mark, Heat) for mark in marks)
    columns = max((len(mark.at) for mark in marks if isinstance(mark, Bars) and not mark.across), default=0)
    return {
        "template": plotly_template("light"),
        "height": picture.height,
        "margin": {"l": 12, "r": 24, "t": 66 if heat else 12, "b": 12},
        "legend": LEGEND,
        "showlegend": any(getattr(mark, "in_legend", False) for mark in marks),
        "hovermode": "closest",
        "hoverdistance": 30,
        "uirevision": "kept",
        "barmode": "stack",
        "bargap": 0.0 if columns > 60 else 0.25,
        "annotations": [],
        "shapes": [],
        "meta": {"square": 70 if heat else 0} if picture.square else None,  # what stands above the square
    }


def _changes(mark: Mark, panel: Panel) -> Spec:
    trace = TRACES[type(mark)](mark, panel)
    return {key: trace[key] for key in ("type", *CHANGING[type(mark)])}


def _named(mark: Line | Dots | Bars) -> Spec:
    return {"name": safe(mark.label), "legendgroup": safe(mark.label), "showlegend": mark.in_legend}


def _line(mark: Line, _: Panel) -> Spec:
    color = mark.color if mark.opacity == 1 else fade(mark.color, mark.opacity)
    hover = {"hovertemplate": mark.hover} if mark.hover else {"hoverinfo": "skip"}
    return {
        **{"type": "scatter", "x": small(mark.x), "y": small(mark.y), **_named(mark), **hover},
        "mode": "lines+markers" if mark.marker and len(mark.x) <= FEW_ROUNDS else "lines",
        "line": {"color": color, "dash": mark.dash, "width": mark.width},
        "marker": {"symbol": mark.marker or "circle", "size": 6},
        "customdata": None if mark.custom is None else small(mark.custom),
    }


def _band(mark: Band, _: Panel) -> Spec:
    x, low, high = np.asarray(mark.x), np.asarray(mark.low), np.asarray(mark.high)
    x, y = small(np.concatenate([x, x[::-1]])), small(np.concatenate([high, low[::-1]]))
    name = {"name": safe(f"{mark.label}, spread"), "legendgroup": safe(mark.label), "showlegend": False}
    fill = {"fill": "toself", "fillcolor": fade(mark.color, 0.16), "line": {"width": 0, "color": mark.color}}
    return {"type": "scatter", "x": x, "y": y, "mode": "lines", "hoverinfo": "skip", **name, **fill}


def _dots(mark: Dots, panel: Panel) -> Spec:
    size = mark.size if isinstance(mark.size, int | float) else small(mark.size)
    outline = {"color": mark.outline or mark.color, "width": 1.2 if mark.outline else 0}
    custom = [safe(text) for text in mark.custom] if isinstance(mark.custom, list) else mark.custom
    look = {"symbol": mark.symbol, "size": size, "color": mark.color, "opacity": mark.opacity}
    return {
        **{"type": "scatter", "x": _places(panel.x, mark.x), "y": _places(panel.y, mark.y), **_named(mark)},
        **{"marker": {**look, "line": outline}, "hovertemplate": mark.hover + "<extra></extra>"},
        "mode": "markers+text" if mark.texts else "markers",
        "text": None if mark.texts is None else [safe(text) for text in mark.texts],
        "textfont": {"color": "#ffffff", "size": 11},
        "customdata": small(custom) if isinstance(custom, np.ndarray) else custom,
    }


def _bars(mark: Bars, panel: Panel) -> Spec:
    at, length = _places(panel.y if mark.across else panel.x, mark.at), small(mark.length)
    way = {"x": length, "y": at, "orientation": "h"} if mark.across else {"x": at, "y": length}
    look = {"marker": {"color": mark.color, "line": {"width": 0}}}
    return {"type": "bar", **way, **_named(mark), **look, "hovertemplate": mark.hover + "<extra></extra>"}


def _heat(mark: Heat, panel: Panel) -> Spec:
    rows, columns = mark.values.shape
    x = _places(panel.x, np.arange(columns) if mark.x is None else mark.x)
    return {
        **{"type": "heatmap", "x": x, "y": _places(panel.y, np.arange(rows)), "z": small(mark.values)},
        **{"zmin": mark.low, "zmax": mark.high, "xgap": mark.gaps[0], "ygap": mark.gaps[1]},
        "autocolorscale": True,
        "colorbar": {**COLOR_BAR, "tickformat": ".0%" if mark.share else ""},
        "hovertemplate": mark.hover + "<extra></extra>",
    }


Trace = Callable[[Any, Panel], Spec]
TRACES: dict[type, Trace] = {Line: _line, Band: _band, Dots: _dots, Bars: _bars, Heat: _heat}


def _axes(panel: Panel, suffix: str, number: int, picture: Picture) -> Spec:
    height = (1 + GAP) / len(picture.panels) - GAP
    top = 1 - number * (height + GAP)
    x, y = _axis(panel.x, MAX_COLUMN_NAMES), _axis(panel.y, max(4, picture.height // ROW_NAME_HEIGHT))
    x |= {"anchor": f"y{suffix}", "tickangle": 0} | ({"matches": "x"} if number else {})
    y |= {"anchor": f"x{suffix}", "domain": [max(0.0, top - height), top]}
    if not panel.x.visible:
        y["scaleanchor"] = f"x{suffix}"
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _axis(axis: Axis, room: int) -> Spec:
    spec: Spec = {
        "title": {"text": safe(axis.title)},
        "automargin": True,
        "visible": axis.visible,
        "showgrid": axis.grid,
        "zeroline": axis.zero_line,
        "zerolinewidth": 2,
        "showticklabels": axis.named,
        "rangemode": "tozero" if axis.from_zero else "normal",
        "tickformat": {"share": ".0%", "count": "d"}.get(axis.kind, ""),
        "dtick": 1 if axis.kind == "count" and axis.few else None,
        "type": "log" if axis.kind == "log" else "linear",
    }
    if axis.names is not None:
        names = _categories(axis.names)
        spec |= {"type": "category", "categoryorder": "array", "categoryarray": names}
        shown = range(0, len(names), -(-len(names) // room))
        spec["tickvals"] = [names[i] for i in shown]
        spec["ticktext"] = [_wrapped(axis.names[i]) for i in shown]
    if axis.ticks is not None:
        spec |= {"tickvals": [*axis.ticks], "ticktext": [_two_lines(text) for text in axis.ticks.values()]}
    if axis.range is not None:
        ends = list(axis.range)
        if axis.kind == "log":
            spec["tickvals"], ends = axis.log_ticks(), np.log10(axis.range).tolist()
        spec["range"] = ends[::-1] if axis.reversed else ends
    elif axis.reversed:
        spec["autorange"] = "reversed"
    return spec


def _write_around(layout: Spec, panel: Panel) -> None:
    """The texts beside the rows; for a heat map also the meaning of its colours and the title of its x axis.

    Plotly moves the title of an x axis into the tick labels when a colour bar lies on its side. And it takes
    a name that looks like a number for a position, so rows are numbered here.
    """

    def write(text: str, **place: Any) -> None:
        layout["annotations"].append({"text": safe(text), "xref": "paper", "showarrow": False, **place})

    for row, text in enumerate(panel.right):
        write(text, x=1, y=row, xanchor="left", xshift=6)
    if panel.right:
        layout["margin"]["r"] = 16 + 8 * max(map(len, panel.right))
    for heat in (mark for mark in panel.marks if isinstance(mark, Heat)):
        write(heat.meaning, x=0.5, y=1, yref="paper", yanchor="bottom", yshift=37)
        write(panel.x.title, x=0.5, y=0, yref="paper", yanchor="top", yshift=-22 if panel.x.named else -4)
        layout["margin"]["b"] = 48
        layout["xaxis"]["title"] = {"text": ""}


def _places(axis: Axis, places: Any) -> Any:
    """On an axis with names, plotly wants the names."""
    if axis.names is None:
        return small(places)
    names = _categories(axis.names)
    return [names[int(i)] for i in places]


def _categories(names: list[str]) -> list[str]:
    """Two rows of one name stay two rows: the second gets a space without width."""
    return [safe(name) + "\u200b" * names[:i].count(name) for i, name in enumerate(names)]


def _wrapped(text: str) -> str:
    return "<br>".join(safe(line) for line in wrap(text, MAX_ROW_NAME))


def _two_lines(text: str) -> str:
    first, _, second = text.partition("\n")
    return f"<b>{_wrapped(first)}</b><br>{safe(second)}"


def small(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int16 if abs(array).max(initial=0) < 2**15 else np.int32)
    return array.astype(np.float32)


def safe(text: str) -> str:
    """Text from a run directory inside plotly, which reads a subset of HTML."""
    return escape(str(text), quote=False)


def fade(color: str, alpha: float) -> str:
    """A hex colour as rgba()."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
