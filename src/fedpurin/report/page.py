"""The HTML report: one file that needs no network, no server and no other file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError
from fedpurin.files import check_writable, write_atomic, writing
from fedpurin.report import draw_plotly
from fedpurin.report.chart import Chart, View
from fedpurin.report.charts import all_charts
from fedpurin.report.extras import need
from fedpurin.report.run_groups import Group, Groups, focus, group_runs, last_name, measured_as
from fedpurin.report.series import moment_control
from fedpurin.report.style import MOMENT_LABELS, look, plotly_template
from fedpurin.report.summary import cards, results
from fedpurin.runs.run import Run, find_runs, load_run
from fedpurin.runs.same_setting import own_name
from fedpurin.shell import command

TEMPLATES = Path(__file__).parent / "templates"
SHOWN_NOTICES = 5


@dataclass(frozen=True)
class Section:
    """A chart with all its views: every picture is computed here, and the page only swaps them."""

    id: str
    title: str
    chart: Chart
    views: dict[str, View]  # by the keys of the chosen options, joined with |


@dataclass(frozen=True)
class Extra:
    """A section of text that a page has beside its charts."""

    title: str
    lines: list[str]
    code: str = ""
    above: bool = False  # stands above the charts, not below


def write_report(
    paths: Sequence[Path | str],
    out: Path | str,
    title: str | None = None,
    extras: Sequence[Extra] = (),
    labels: Mapping[Path, str] | None = None,
) -> Path:
    """Write the report of runs or comparison directories to `out`, whole or not at all.

    `labels` names runs, by their path, where they should not be named by what sets them apart.
    """
    target = Path(out)
    check_report(target)
    runs = [load_run(path) for path in find_runs([Path(path) for path in paths])]
    started = [run for run in runs if run.rounds > 0]
    if not started:
        raise RunError(f"{runs[0].path} has no finished round yet; wait for the first one")
    named = labels or {}
    groups = [replace(g, label=named.get(g.runs[0].path, g.label)) for g in group_runs(started)]
    page = _page(groups, title or _title(groups), _notices(runs), extras)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, page)
    return target


def check_report(target: Path) -> None:
    """Whether a report could be written there; whoever starts a long run asks before it."""
    need("plotly.graph_objects"), need("jinja2")
    check_writable(target)


def _page(groups: Groups, title: str, notices: list[str], extras: Sequence[Extra]) -> str:
    sections, missing = [], []
    for definition in all_charts():
        name, chart = measured_as(groups).words(definition.title), definition.build(groups)
        if isinstance(chart, Chart):
            sections.append(Section(definition.id, name, chart, _views(chart)))
        elif chart.listed:
            missing.append((name, chart.reason))
    moment = moment_control(groups)
    jinja = need("jinja2")
    loader, strict = jinja.FileSystemLoader(TEMPLATES), jinja.StrictUndefined
    environment = jinja.Environment(loader=loader, autoescape=True, undefined=strict, trim_blocks=True)
    tables = environment.get_template("table.html")
    as_it_is = jinja.utils.markupsafe.Markup  # for what is ours, or escaped already
    page: str = environment.get_template("page.html").render(
        title=title,
        subtitle=_subtitle(groups),
        notices=notices,
        moment=moment,
        measure=measured_as(groups).name,
        summaries=[(m, cards(groups, m), results(groups, m)) for m in moment.options or ["upload"]],
        last_rounds=last_name(groups),
        validated=any(group.validated for group in groups),
        extras=extras,
        sections=sections,
        missing=missing,
        agains=[_again(group, group is focus(groups)) for group in groups],
        css=as_it_is((TEMPLATES / "page.css").read_text("utf-8")),
        js=as_it_is((TEMPLATES / "page.js").read_text("utf-8")),
        plotly=as_it_is(need("plotly.offline").get_plotlyjs().replace("</script", "<\\/script")),
        data=as_it_is(_embedded(sections, tables)),
    )
    return page


def _views(chart: Chart) -> dict[str, View]:
    names = [control.name for control in chart.controls]
    return {
        "|".join(keys): chart.view(**dict(zip(names, keys, strict=True)))
        for keys in product(*(control.options for control in chart.controls))
    }


def _title(groups: Groups) -> str:
    if len(groups) == 1:
        return f"{groups[0].label} report"
    every_one_once = len({group.method for group in groups}) == len(groups)
    return f"{len(groups)} methods compared" if every_one_once else "Comparison"


def _subtitle(groups: Groups) -> str:
    runs = [group.runs[0] for group in groups]
    data = dict.fromkeys(own_name(run.setting("data", "dataset", "unknown data"), "data") for run in runs)
    models = dict.fromkeys(own_name(run.setting("model", "name", "unknown model"), "model") for run in runs)
    return " · ".join(", ".join(names) for names in (data, models, [group.label for group in groups]))


def _notices(runs: Sequence[Run]) -> list[str]:
    lines = []
    for run in sorted(runs, key=lambda run: run.rounds == 0):
        if run.complete and run.rounds:
            continue
        told = f"{run.rounds} of {run.planned_rounds} rounds, not complete. All figures are of what is there."
        told = told if run.rounds else "no finished round yet, left out."
        lines.append(f"{look(run.method).label}, seed {run.seed}: {told}")
    more = len(lines) - SHOWN_NOTICES
    return lines if more <= 0 else [*lines[:SHOWN_NOTICES], f"... and {more} more."]


def _again(group: Group, main: bool) -> dict[str, Any]:
    """How to run a group again."""
    run = group.runs[0]
    file = run.path / "config.toml"
    commands = [command("run", file, "--seed", other.seed) for other in group.runs]
    if started := run.environment.get("command"):
        commands.append(f"# first started as: {shlex.join([Path(started[0]).name, *started[1:]])}")
    digests = [str(other.summary["digest"]) for other in group.runs if other.summary.get("digest")]
    config = (run.path / "config.toml").read_text("utf-8")
    return {"label": group.label, "commands": commands, "config": config, "digests": digests, "main": main}


def _embedded(sections: Sequence[Section], tables: Any) -> str:
    """All views as JSON that cannot close its script element."""
    encoder = need("plotly.utils").PlotlyJSONEncoder
    data = {
        "templates": {theme: plotly_template(theme) for theme in ("light", "dark")},
        "moments": MOMENT_LABELS,
        "charts": [
            {
                "id": section.id,
                "controls": [{"name": c.name, "options": list(c.options)} for c in section.chart.controls],
                "views": {key: _view(view, tables) for key, view in section.views.items()},
            }
            for section in sections
        ],
    }
    return json.dumps(data, cls=encoder, separators=(",", ":")).replace("<", "\\u003c")


def _view(view: View, tables: Any) -> dict[str, Any]:
    """Figures go without their template, which the page sets for light or dark."""
    figures = [draw_plotly.draw(picture).to_dict() for picture in view.pictures]
    for figure in figures:
        figure["layout"].pop("template", None)
    table = tables.render(table=view.table) if view.table else ""
    return {"sentence": view.sentence, "figures": figures, "table": table}
