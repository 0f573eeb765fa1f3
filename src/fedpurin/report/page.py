"""The HTML report: one file that needs no network, no server and no other file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedpurin.errors import MissingExtraError, RunError
from fedpurin.files import write_atomic
from fedpurin.report.chart_accuracy import accuracy_chart, gain_chart
from fedpurin.report.chart_classes import classes_chart
from fedpurin.report.chart_masks import coverage_chart, selection_chart
from fedpurin.report.chart_people import groups_chart, overlap_chart
from fedpurin.report.chart_traffic import bytes_chart, cost_chart, traffic_chart
from fedpurin.report.extras import need_plotly
from fedpurin.report.groups import Group, focus, group_runs
from fedpurin.report.load import Run, find_runs, load_run
from fedpurin.report.series import moments_of
from fedpurin.report.style import MOMENT_LABELS
from fedpurin.report.tables import cards_html, table_html
from fedpurin.report.views import Chart, Missing, template

HERE = Path(__file__).parent
SEGMENTS = 4  # more choices than this become a drop-down list
BUILDERS = (
    accuracy_chart,
    gain_chart,
    traffic_chart,
    cost_chart,
    bytes_chart,
    classes_chart,
    overlap_chart,
    groups_chart,
    coverage_chart,
    selection_chart,
)
MOMENTS_NOTE = (
    "<dt>after training</dt><dd>the client's dense model when its local epochs are over</dd>"
    "<dt>as uploaded</dt><dd>the model as the server decodes it, masked for FedPURIN; the paper's figure</dd>"
    "<dt>after merging</dt><dd>the model after the next download; what a user would deploy</dd>"
)
# Nothing may be fetched, whatever a run directory contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def write_report(paths: Sequence[Path | str], out: Path | str, title: str | None = None) -> Path:
    """Write the report of runs or comparison directories to `out`, whole or not at all."""
    need_plotly()
    runs = [load_run(path) for path in find_runs([Path(path) for path in paths])]
    started = [run for run in runs if run.rounds > 0]
    if not started:
        raise RunError(f"{runs[0].path} has no finished round yet; wait for the first one")
    skipped = [run for run in runs if run.rounds == 0]
    page = build_page(started, skipped, title)
    return _write(Path(out), page)


def build_page(runs: Sequence[Run], skipped: Sequence[Run] = (), title: str | None = None) -> str:
    groups = group_runs(runs)
    made = [chart for build in BUILDERS if (chart := build(groups)) is not None]
    charts = [chart for chart in made if isinstance(chart, Chart)]
    missing = [chart for chart in made if isinstance(chart, Missing)]
    moments = moments_of(groups)
    name = title or _title(groups)
    parts = {
        "TITLE": escape(name),
        "POLICY": POLICY,
        "CSS": (HERE / "page.css").read_text("utf-8"),
        "SUBTITLE": escape(_subtitle(groups)),
        "BANNER": _banner(runs, skipped),
        "MOMENTS": _moment_switch(moments),
        "CARDS": cards_html(groups, moments),
        "TABLE": table_html(groups, moments),
        "MOMENTS_NOTE": MOMENTS_NOTE,
        "NAV": "".join(f'<a href="#{chart.id}">{escape(chart.title)}</a>' for chart in charts),
        "CHARTS": "\n".join(_section(chart) for chart in charts),
        "MISSING": _missing(missing),
        "CONFIGS": "\n".join(_config(group, group is focus(groups)) for group in groups),
        "DATA": _embedded(charts),
        "PLOTLY": _plotly(),
        "JS": (HERE / "page.js").read_text("utf-8"),
    }
    page = (HERE / "page.html").read_text("utf-8")
    # One pass over the template, so that nothing inside a run can stand for a placeholder.
    pieces = page.split("%%")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _title(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return f"{groups[0].label} report"
    return (
        f"{len(groups)} methods compared" if len({g.method for g in groups}) == len(groups) else "Comparison"
    )


def _subtitle(groups: Sequence[Group]) -> str:
    run = groups[0].runs[0]
    data = run.setting("data", "dataset", "unknown data")
    model = run.setting("model", "name", "unknown model")
    return f"{data} · {model} · {', '.join(group.label for group in groups)}"


def _banner(runs: Sequence[Run], skipped: Sequence[Run]) -> str:
    lines = [
        f"{run.label}, seed {run.seed}: {run.rounds} of {run.planned_rounds} rounds, not complete. "
        "All figures are derived from what is there."
        for run in runs
        if not run.complete
    ]
    lines += [f"{run.label}, seed {run.seed}: no finished round yet, left out." for run in skipped]
    shown = lines if len(lines) <= 5 else [*lines[:5], f"... and {len(lines) - 5} more."]
    return "".join(f'<p class="banner">{escape(line)}</p>' for line in shown)


def _choice(name: str, label: str, options: dict[str, str], scope: str) -> str:
    """Radio buttons for a few options, a list for many."""
    if len(options) <= SEGMENTS:
        buttons = "".join(
            f'<label><input type="radio" name="{scope}-{name}" data-control="{name}" value="{escape(key)}"'
            f"{' checked' if i == 0 else ''}><span>{escape(text)}</span></label>"
            for i, (key, text) in enumerate(options.items())
        )
        return f'<fieldset class="choice"><legend>{escape(label)}</legend>{buttons}</fieldset>'
    entries = "".join(
        f'<option value="{escape(key)}">{escape(text)}</option>' for key, text in options.items()
    )
    return f'<label class="choice">{escape(label)} <select data-control="{name}">{entries}</select></label>'


def _moment_switch(moments: Sequence[str]) -> str:
    if not moments:
        return ""
    return _choice("moment", "Accuracy", {moment: MOMENT_LABELS[moment] for moment in moments}, "page")


def _section(chart: Chart) -> str:
    first = next(iter(chart.views.values()))
    own = [control for control in chart.controls if control.name != "moment" and len(control.options) > 1]
    controls = "".join(_choice(c.name, c.label, c.options, chart.id) for c in own)
    chip = '<span class="chip" data-chip></span>' if any(c.name == "moment" for c in chart.controls) else ""
    panels = "".join(
        f'<div class="plot" style="height:{figure.layout.height}px" role="img" '
        f'aria-label="{escape(chart.title)}"></div>'
        for figure in first.figures
    )
    slider = ""
    if chart.slider:
        slider = (
            f'<div class="slider"><button type="button" data-play aria-label="Play">▶</button>'
            f"<label>{escape(chart.slider)} <output></output>"
            '<input type="range" min="0" step="1" value="0"></label></div>'
        )
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f'<section class="chart" id="{chart.id}"><h2>{escape(chart.title)} {chip}</h2>'
        f'<p class="sentence" data-sentence>{escape(first.sentence)}</p>'
        f'<div class="controls">{controls}</div>'
        f'{slider}<div class="panels panels-{len(first.figures)}">{panels}</div>{note}</section>'
    )


def _missing(missing: Sequence[Missing]) -> str:
    if not missing:
        return ""
    entries = "".join(f"<li><b>{escape(m.title)}</b>: {escape(m.reason)}.</li>" for m in missing)
    return f'<section id="missing"><h2>Left out</h2><ul>{entries}</ul></section>'


def _config(group: Group, opened: bool) -> str:
    run = group.runs[0]
    text = (run.path / "config.toml").read_text("utf-8")
    file = shlex.quote(str(run.path / "config.toml"))
    commands = [f"fedpurin run {file} --seed {other.seed}" for other in group.runs]
    said = run.environment.get("command") or run.environment.get("argv")
    if said:
        told = shlex.join([Path(said[0]).name, *map(str, said[1:])]) if isinstance(said, list) else str(said)
        commands.append(f"# first started as: {told}")
    digests = [str(other.summary["digest"]) for other in group.runs if other.summary.get("digest")]
    proof = f'<p class="note">digest {escape(", ".join(digests))}</p>' if digests else ""
    return (
        f"<h3>{escape(group.label)}</h3><pre><code>{escape(chr(10).join(commands))}</code></pre>"
        f"<details{' class=first' if opened else ''}><summary>Configuration</summary>"
        f"<pre><code>{escape(text)}</code></pre>{proof}</details>"
    )


def _embedded(charts: Sequence[Chart]) -> str:
    """All views as JSON that cannot close its script element."""
    from plotly.utils import PlotlyJSONEncoder

    data = {
        "templates": {theme: template(theme) for theme in ("light", "dark")},
        "moments": MOMENT_LABELS,
        "charts": [
            {
                "id": chart.id,
                "controls": [{"name": c.name, "options": list(c.options)} for c in chart.controls],
                "views": {
                    "|".join(key): {"sentence": view.sentence, "figures": [_bare(f) for f in view.figures]}
                    for key, view in chart.views.items()
                },
            }
            for chart in charts
        ],
    }
    text = json.dumps(data, cls=PlotlyJSONEncoder, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _bare(figure: Any) -> dict[str, Any]:
    """The figure without its template, which the page sets for light or dark."""
    made = figure.to_dict()
    made["layout"].pop("template", None)
    return made


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError("report", "the HTML report") from error
    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _write(out: Path, page: str) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, page)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}; choose another place with -o") from error
    return out
