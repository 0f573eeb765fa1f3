"""Pictures drawn with matplotlib: no browser, no window, readable in a column of a paper or on a slide.

Imported only where a picture is drawn: matplotlib is an optional package.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Scale
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from fedpurin.report.marks import Axis, Band, Bars, Dots, Heat, Line, Mark, Panel, Picture, Shade, Text
from fedpurin.report.style import DASHES, MARKERS, SEQUENTIAL

POINTS = 0.6  # a pixel of the page in points of a printed figure
WIDTH, SQUARE = 7.2, 5.4  # inches
MAX_COLUMN_NAMES = 32
ROW_NAME_HEIGHT = 16  # pixels of the picture's height
FEW_MARKERS = 12
LETTERS, HANDLE = 92, 7  # what a row of the legend has room for, and what a sample of a line takes of it


def draw(picture: Picture, round: int | None = None) -> Figure:
    """A Figure of the recorded round nearest to the asked one; call it in `matplotlib_style()`."""
    size = (SQUARE, 0.93 * SQUARE) if picture.square else (WIDTH, max(2.8, picture.height / 100))
    title, replaced = picture.title, list[Mark]()
    if picture.frames:
        shown = min(picture.frames, key=lambda t: abs(t - (0 if round is None else round)))
        title, replaced = f"{title}, round {shown}", picture.frames[shown]
    with rc_context({"text.parse_math": False}):  # a $ in a name is a $
        figure = Figure(figsize=size)
        rows = figure.subplots(len(picture.panels), 1, sharex=True, squeeze=False)[:, 0]
        for place, (axes, panel) in enumerate(zip(rows, picture.panels, strict=True)):
            _draw_panel(axes, panel, replaced if place == 0 else [], picture.height)
        wrapped = fill(title, 46 if picture.square else 66)
        figure.suptitle(wrapped, x=0.01, ha="left", fontsize=12, fontweight="bold")
        _legend(figure, rows, [mark for panel in picture.panels for mark in panel.marks])
    return figure


def _draw_panel(axes: Axes, panel: Panel, replaced: list[Mark], height: int) -> None:
    floor: dict[float, float] = {}  # the top of the stacked bars so far, by position
    for mark in [*replaced, *panel.marks[len(replaced) :]]:
        match mark:
            case Line():
                _line(axes, mark)
            case Band():
                axes.fill_between(mark.x, mark.low, mark.high, color=mark.color, alpha=0.15, lw=0)
            case Dots():
                _dots(axes, mark)
            case Bars():
                _bars(axes, mark, floor)
            case Heat():
                _heat(axes, mark, panel)
            case Text():
                axes.text(mark.x, mark.y, mark.text, ha=mark.side, va="center", fontsize=10, color="#444444")
            case Shade():
                axes.axvspan(mark.left, mark.right, color=mark.color, alpha=0.08, lw=0)
    if not panel.x.visible:
        axes.set_axis_off()
        axes.set_aspect("equal")
    if panel.x.zero_line:
        axes.axvline(0, color="#888888", lw=1)
    heat = any(isinstance(mark, Heat) for mark in panel.marks)  # it has turned its y axis already
    _scale(axes.xaxis, panel.x, MAX_COLUMN_NAMES, turned=False)
    _scale(axes.yaxis, panel.y, max(4, height // ROW_NAME_HEIGHT), turned=heat)
    if panel.y.names is not None and not heat:
        axes.set_ylim(len(panel.y.names) - 0.45, -0.55)
    for row, text in enumerate(panel.right):
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)


def _line(axes: Axes, mark: Line) -> None:
    axes.plot(
        mark.x,
        mark.y,
        color=mark.color,
        ls=DASHES.get(mark.dash, "-"),
        lw=0.75 * mark.width,
        alpha=mark.opacity,
        marker=MARKERS.get(mark.marker, ""),
        markevery=max(1, len(mark.x) // FEW_MARKERS),
        ms=4.5,
        zorder=1 if mark.opacity < 1 else 2,
        label=mark.label if mark.in_legend else None,
    )


def _dots(axes: Axes, mark: Dots) -> None:
    x, y = np.asarray(mark.x), np.asarray(mark.y)
    symbols = np.broadcast_to(np.asarray(mark.symbol), x.shape)
    sizes = np.broadcast_to(np.asarray(mark.size, dtype=float), x.shape)
    for symbol in np.unique(symbols):
        chosen = symbols == symbol
        outline: dict[str, Any] = {"edgecolors": mark.outline} if mark.outline else {}
        axes.scatter(
            x[chosen],
            y[chosen],
            s=(POINTS * sizes[chosen]) ** 2,
            color=mark.color,
            alpha=mark.opacity,
            marker=MARKERS.get(str(symbol), "o"),
            lw=1.2 if mark.outline or symbol == "x" else 0,
            zorder=3,
            label=mark.label if mark.in_legend else None,
            **outline,
        )
    for text, a, b in zip(mark.texts or [], x, y, strict=False):
        axes.text(a, b, text, color="white", fontsize=8, ha="center", va="center", zorder=4)


def _bars(axes: Axes, mark: Bars, floor: dict[float, float]) -> None:
    at, length = np.asarray(mark.at, dtype=float), np.asarray(mark.length, dtype=float)
    start = np.array([floor.get(place, 0.0) for place in at])
    if mark.across:
        axes.barh(at, length, 0.7, left=start, color=mark.color, label=mark.label)
    else:
        axes.use_sticky_edges = False  # an empty section on top of the stack would hold the axis there
        axes.bar(at, length, 0.8 if len(at) <= 60 else 1.0, bottom=start, color=mark.color, label=mark.label)
    floor.update(zip(at, start + length, strict=True))


def _heat(axes: Axes, mark: Heat, panel: Panel) -> None:
    rows, columns = mark.values.shape
    left, right = (0.0, columns - 1.0) if mark.x is None else (float(mark.x[0]), float(mark.x[-1]))
    image = axes.imshow(
        mark.values,
        aspect="auto",
        cmap=LinearSegmentedColormap.from_list("fedpurin", SEQUENTIAL["light"]),
        vmin=mark.low,
        vmax=mark.high,
        extent=(left - 0.5, right + 0.5, rows - 0.5, -0.5),
        interpolation="nearest",
    )
    percents = PercentFormatter(xmax=1, decimals=0) if mark.share else None
    room = 0.02 + 0.014 * max(map(len, panel.right), default=0)  # for the texts beside the rows
    axes.figure.colorbar(image, ax=axes, pad=room, label=mark.meaning, format=percents)


def _scale(scale: Scale, axis: Axis, room: int, *, turned: bool) -> None:
    axes = scale.axes
    name: Literal["x", "y"] = "x" if scale is axes.xaxis else "y"
    scale.set_label_text(axis.title[:1].upper() + axis.title[1:])
    if axis.kind == "log":
        axes.set(**{f"{name}scale": "log"})
        ticks = axis.log_ticks()
        scale.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        scale.set_minor_locator(NullLocator())
    elif axis.kind == "share":
        scale.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))  # whole percents
        scale.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    elif axis.kind == "count":
        scale.set_major_locator(MaxNLocator(integer=True))
    if axis.names is not None:
        places = range(0, len(axis.names), -(-len(axis.names) // room))
        scale.set_ticks(places, [axis.names[i] if axis.named else "" for i in places], fontsize=9)
    if axis.ticks is not None:
        scale.set_ticks(list(axis.ticks), list(axis.ticks.values()))
    if axis.range is not None or axis.from_zero:
        axes.set(**{f"{name}lim": axis.range or (0, None)})
    if axis.reversed and not turned:
        scale.set_inverted(True)
    if not axis.grid:
        axes.grid(visible=False, axis=name)
    if not axis.named:
        scale.set_tick_params(length=0)


def _legend(figure: Figure, rows: Any, marks: list[Mark]) -> None:
    """Below the axes, where it never covers a line; in the order of the marks."""
    handles: dict[str, Any] = {}
    for axes in rows:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    named = [mark.label for mark in marks if isinstance(mark, Line | Dots | Bars) and mark.label in handles]
    labels = list(dict.fromkeys(named))
    if not labels:
        return
    widths = [len(label) + HANDLE for label in labels]
    one_row = len(labels) < 6 and sum(widths) <= LETTERS
    columns = len(labels) if one_row else min(max(1, LETTERS // max(widths)), 4)
    lines = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.22 * max(0, lines - 2))
    entries = [handles[label] for label in labels]
    figure.legend(entries, labels, loc="outside lower center", ncols=columns, handlelength=2.6)
