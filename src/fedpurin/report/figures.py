"""The report's figures for notebooks (plotly) and, through matplotlib, for papers and talks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError
from fedpurin.files import write_with
from fedpurin.report.chart_accuracy import accuracy_chart, gain_chart
from fedpurin.report.chart_classes import classes_chart
from fedpurin.report.chart_masks import coverage_chart, selection_chart
from fedpurin.report.chart_people import groups_chart, overlap_chart
from fedpurin.report.chart_traffic import bytes_chart, cost_chart, traffic_chart
from fedpurin.report.extras import need_plotly
from fedpurin.report.groups import Group, group_runs
from fedpurin.report.load import Run, find_runs, load_run
from fedpurin.report.style import matplotlib_style
from fedpurin.report.views import Chart, Missing

Runs = Run | Path | str | Sequence[Run | Path | str]

# name -> builder of the chart, and which of its figures side by side
_CHARTS: dict[str, tuple[Callable[[Sequence[Group]], Chart | Missing | None], int]] = {
    "accuracy": (accuracy_chart, 0),
    "gain": (gain_chart, 0),
    "traffic": (traffic_chart, 0),
    "cost": (cost_chart, 0),
    "bytes": (bytes_chart, 0),
    "classes": (classes_chart, 0),
    "overlap": (overlap_chart, 1),
    "graph": (overlap_chart, 0),
    "groups": (groups_chart, 0),
    "coverage": (coverage_chart, 0),
    "selection": (selection_chart, 0),
}
FIGURES = tuple(_CHARTS)
SUFFIXES = (".png", ".svg", ".pdf")


def figure(runs: Runs, name: str, **choices: str) -> Any:
    """A plotly Figure, as in the report. Choices: moment="merged", link="10 Mbit/s", band="none", ...

    `runs` is a loaded run, a path of a run or comparison directory, or a list of these.
    """
    need_plotly()
    _check_name(name)
    build, place = _CHARTS[name]
    chart = build(as_groups(runs))
    if chart is None or isinstance(chart, Missing):
        reason = chart.reason if chart is not None else "none of these methods forms groups of clients"
        raise RunError(f"there is no figure {name!r} of these runs: {reason}")
    key = []
    for control in chart.controls:
        asked = choices.pop(control.name, None)
        if asked is not None and asked not in control.options:
            known = ", ".join(control.options)
            raise RunError(f"figure {name!r} has no {control.name} {asked!r}; choose one of {known}")
        key.append(asked if asked is not None else next(iter(control.options)))
    if choices:
        raise RunError(f"figure {name!r} has no choice {', '.join(choices)}")
    made = chart.views[tuple(key)].figures[place]
    made.update_layout(title={"text": chart.title, "x": 0, "xref": "container"}, margin={"t": 70})
    if made.frames:
        made.update_layout(sliders=[_slider(made.frames)])
    return made


def save_figure(runs: Runs, name: str, path: Path | str, **choices: Any) -> Path:
    """Write a PNG, SVG or PDF, by the suffix of the path. Choices: moment, link, round."""
    from fedpurin.report.paper import draw

    out = Path(path)
    if out.suffix.lower() not in SUFFIXES:
        raise RunError(f"{out} should end in one of {', '.join(SUFFIXES)}")
    _check_name(name)
    with matplotlib_style():
        drawn = draw(as_groups(runs), name, **choices)
        _save(drawn, out)
    return out


def as_groups(runs: Runs) -> list[Group]:
    given = [runs] if isinstance(runs, Run | Path | str) else list(runs)
    loaded: list[Run] = []
    for entry in given:
        loaded += [entry] if isinstance(entry, Run) else [load_run(path) for path in find_runs([Path(entry)])]
    started = [run for run in loaded if run.rounds > 0]
    if not started:
        raise RunError("these runs have no finished round yet; wait for the first one")
    return group_runs(started)


def _check_name(name: str) -> None:
    if name not in FIGURES:
        raise RunError(f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}")


def _slider(frames: Sequence[Any]) -> dict[str, Any]:
    """Plotly's own slider, for notebooks; the report has its own for two figures at once."""
    now = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    steps = [{"label": f.name, "method": "animate", "args": [[f.name], now]} for f in frames]
    return {"active": len(steps) - 1, "steps": steps, "currentvalue": {"prefix": "round "}, "pad": {"t": 40}}


def _save(drawn: Any, out: Path) -> None:
    """Whole or not at all; without dates, so that the same runs give the same file."""
    kind = out.suffix.lower().lstrip(".")
    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_with(out, lambda file: drawn.savefig(file, format=kind, metadata=undated))
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
