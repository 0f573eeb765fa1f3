"""Pictures as data: marks on axes. `draw_plotly` and `draw_matplotlib` draw them.

Positions on an axis with `names` are whole numbers from 0. Texts are plain; the renderers escape them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

MAX_LOG_TICKS = 6
Numbers = NDArray[Any] | Sequence[float]


@dataclass(frozen=True)
class Line:
    x: Numbers  # a NaN ends one piece of the line and begins another
    y: Numbers
    label: str
    color: str
    dash: str = "solid"  # plotly's names
    marker: str = ""  # plotly's symbols; drawn when the points are few
    width: float = 2.4
    opacity: float = 1.0
    in_legend: bool = True
    hover: str = ""  # what the pointer shows, in plotly's template language; "" for nothing
    custom: Numbers | None = None  # %{customdata} of the hover text


@dataclass(frozen=True)
class Band:
    """The spread around the line of the same label; hidden and shown with it."""

    x: Numbers
    low: Numbers
    high: Numbers
    label: str
    color: str


@dataclass(frozen=True)
class Dots:
    x: Numbers
    y: Numbers
    label: str
    color: str
    symbol: str | list[str] = "circle"
    size: float | Numbers = 9  # diameter in pixels
    opacity: float = 1.0
    outline: str = ""
    texts: list[str] | None = None  # inside the dots
    in_legend: bool = False
    hover: str = ""
    custom: Any = None


@dataclass(frozen=True)
class Bars:
    """Stacked on the bars that were added to the panel before."""

    at: Numbers
    length: Numbers
    label: str
    color: str
    across: bool = False  # lying bars
    in_legend: bool = True
    hover: str = ""


@dataclass(frozen=True)
class Heat:
    values: NDArray[Any]  # [rows, columns], NaN for an empty cell
    meaning: str  # of the colours
    x: Numbers | None = None  # None where the axis has names
    low: float | None = None
    high: float | None = None
    share: bool = False  # values are shares, shown in percent
    gaps: tuple[int, int] = (0, 0)  # pixels between columns, between rows
    hover: str = ""


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    side: str = "center"  # left: the text begins at x; right: it ends there


@dataclass(frozen=True)
class Shade:
    """A stripe behind everything, from left to right in x."""

    left: float
    right: float
    color: str


Mark = Line | Band | Dots | Bars | Heat | Text | Shade


@dataclass(frozen=True)
class Axis:
    title: str = ""
    kind: str = "number"  # number, share (in percent), count (whole numbers), log
    few: bool = False  # every whole number gets its tick
    names: list[str] | None = None  # one per position
    ticks: dict[float, str] | None = None  # the only ticks of a number axis
    range: tuple[float, float] | None = None
    from_zero: bool = False
    reversed: bool = False
    grid: bool = True
    zero_line: bool = False
    named: bool = True  # False: names are left out, for want of room
    visible: bool = True

    def log_ticks(self) -> list[float]:
        """Round numbers between the ends of a log axis, few enough for a phone."""
        if self.range is None:
            return []
        low, high = self.range
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
            marked = [step * 10.0**power for power in powers for step in steps]
            ticks = [tick for tick in marked if low <= tick <= high]
            if len(ticks) <= MAX_LOG_TICKS:
                break
        return ticks


@dataclass(frozen=True)
class Panel:
    x: Axis
    y: Axis
    marks: list[Mark]
    right: list[str] = field(default_factory=list)  # a text at the right end of each named row


@dataclass(frozen=True)
class Picture:
    """Panels one above the other over one x axis."""

    title: str  # where the picture stands alone, and for those who cannot see it
    height: int  # pixels in the page; a hundred of them make an inch
    panels: list[Panel]
    square: bool = False
    # Round -> what stands for the first marks of the first panel in that round.
    frames: dict[int, list[Mark]] = field(default_factory=dict)
