"""What a chart of the report is, as data: pictures, the sentence beside them, the choices above them.

A file of `fedpurin.report.charts` describes its chart with these words and those of `fedpurin.report.marks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedpurin.report.marks import Picture
from fedpurin.report.run_groups import Group


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    help: str = ""


@dataclass(frozen=True)
class Row:
    method: str
    label: str
    color: str
    cells: dict[str, str]  # by the key of the column
    best: frozenset[str] = frozenset()  # columns in which no comparable row is higher


@dataclass(frozen=True)
class Table:
    caption: str
    columns: list[Column]
    rows: list[Row]


@dataclass(frozen=True)
class View:
    """A chart for one choice of its controls: pictures side by side, and a sentence on what to see."""

    pictures: list[Picture]
    sentence: str
    table: Table | None = None


@dataclass(frozen=True)
class Control:
    """A choice above a chart; the first option is the default. "moment" is shared by the whole page."""

    name: str
    label: str
    options: dict[str, str]  # key -> text


@dataclass(frozen=True)
class Chart:
    """A chart of certain runs. `view` takes an option's key for each control, by the control's name."""

    view: Callable[..., View]
    controls: list[Control] = field(default_factory=list)
    note: str = ""  # definitions, and what was sampled or binned
    slider: str = ""  # label of the slider over the pictures' frames


@dataclass(frozen=True)
class Missing:
    """These runs have nothing to show in this chart."""

    reason: str
    listed: bool = True  # False: another chart's reason says it all


@dataclass(frozen=True)
class Definition:
    """What a file of `fedpurin.report.charts` calls CHART."""

    id: str
    title: str
    place: int  # in the page, from top to bottom
    build: Callable[[Sequence[Group]], Chart | Missing]
    pictures: tuple[str, ...] = ()  # names of the pictures side by side, where there are several

    @property
    def names(self) -> tuple[str, ...]:
        return self.pictures or (self.id,)
