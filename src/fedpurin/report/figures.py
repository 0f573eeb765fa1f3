"""Single figures: plotly for notebooks, PNG, SVG and PDF through matplotlib for papers and talks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError
from fedpurin.files import write_with, writing
from fedpurin.report import draw_plotly
from fedpurin.report.chart import Control, Missing
from fedpurin.report.charts import all_charts
from fedpurin.report.extras import need, need_matplotlib
from fedpurin.report.marks import Picture
from fedpurin.report.run_groups import Group, group_runs
from fedpurin.report.style import matplotlib_style
from fedpurin.runs.run import Run, find_runs, load_run

Runs = Run | Path | str | Sequence[Run | Path | str]

FIGURES = tuple(name for definition in all_charts() for name in definition.names)
UNDATED = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def figure(runs: Runs, name: str, **choices: Any) -> Any:
    """A plotly Figure, as in the report. Choices: moment="merged", link="10 Mbit/s", band="none", ...

    `runs` is a loaded run, a path of a run or comparison directory, or a list of these.
    """
    need("plotly.graph_objects")
    picture, round = _choose(runs, name, choices)
    drawn = draw_plotly.draw(picture)
    drawn.update_layout(title={"text": draw_plotly.safe(picture.title), "x": 0, "xref": "container"})
    drawn.update_layout(margin={"t": drawn.layout.margin.t + 58})
    if picture.frames:
        rounds = list(picture.frames)
        active = min(range(len(rounds)), key=lambda i: abs(rounds[i] - (round or 0)))
        for trace, change in zip(drawn.data, drawn.frames[active].data, strict=False):
            trace.update(change)
        drawn.update_layout(sliders=[_slider(rounds, active)])
    return drawn


def save_figure(runs: Runs, name: str, path: Path | str, **choices: Any) -> Path:
    """Write a PNG, SVG or PDF, by the suffix of the path. The choices are those of `figure`.

    Whole or not at all, and without dates, so that the same runs give the same file.
    """
    need_matplotlib()
    from fedpurin.report import draw_matplotlib

    out = Path(path)
    suffix = out.suffix.lower()
    if suffix not in UNDATED:
        raise RunError(f"{out} should end in one of {', '.join(UNDATED)}")
    picture, round = _choose(runs, name, choices)
    with matplotlib_style():
        drawn = draw_matplotlib.draw(picture, round)
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_with(out, lambda file: drawn.savefig(file, format=suffix[1:], metadata=UNDATED[suffix]))
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


def _choose(runs: Runs, name: str, choices: dict[str, Any]) -> tuple[Picture, int | None]:
    """The picture of that name for these choices, and the round asked for."""
    definition = next((entry for entry in all_charts() if name in entry.names), None)
    if definition is None:
        raise RunError(f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}")
    chart = definition.build(as_groups(runs))
    if isinstance(chart, Missing):
        raise RunError(f"there is no figure {name!r} of these runs: {chart.reason}")
    allowed = [control.name for control in chart.controls] + (["round"] if chart.slider else [])
    unknown = [choice for choice in choices if choice not in allowed]
    if unknown:
        has = f"it has {', '.join(allowed)}" if allowed else "it has none"
        raise RunError(f"figure {name!r} has no choice {', '.join(unknown)}; {has}")
    view = chart.view(**{control.name: _option(name, control, choices) for control in chart.controls})
    round = choices.get("round")
    return view.pictures[definition.names.index(name)], None if round is None else int(round)


def _option(name: str, control: Control, choices: dict[str, Any]) -> str:
    """The key of the chosen option, which may be named by its key or by its text; else the first."""
    options = control.options
    asked = choices.get(control.name, next(iter(options)))
    by_text = {text: key for key, text in options.items()}
    if asked not in options and asked not in by_text:
        raise RunError(f"figure {name!r} has no {control.name} {asked!r}; choose one of {', '.join(options)}")
    return str(asked if asked in options else by_text[asked])


def _slider(rounds: Sequence[int], active: int) -> dict[str, Any]:
    """Plotly's own slider, for notebooks; the report has its own for two figures at once."""
    now = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    steps = [{"label": str(t), "method": "animate", "args": [[str(t)], now]} for t in rounds]
    return {"active": active, "steps": steps, "currentvalue": {"prefix": "round "}, "pad": {"t": 40}}
