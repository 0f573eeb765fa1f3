"""Figures from Python: the right series in plotly, and PNG, SVG, PDF files through matplotlib."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from make_run import Spec, make_run

from fedpurin.errors import MissingExtraError, RunError
from fedpurin.methods import METHODS
from fedpurin.report import FIGURES, METHOD_COLORS, METHOD_LABELS, charts, figure, save_figure, write_report
from fedpurin.report.style import METHOD_MARKS
from fedpurin.runs.run import load_run

SHOWN = ("separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin")  # of conftest's comparison


def test_every_method_has_its_own_colour_label_dash_and_marker() -> None:
    assert set(METHOD_COLORS) == set(METHOD_LABELS) == set(METHOD_MARKS) == set(METHODS)
    assert len(set(METHOD_COLORS.values())) == len(METHODS)
    assert len({marks[1] for marks in METHOD_MARKS.values()}) == len(METHODS)


def test_the_accuracy_figure_has_a_line_per_method_with_the_runs_means(comparison: Path) -> None:
    made = figure(comparison, "accuracy", moment="merged", band="none")
    assert [trace.name for trace in made.data] == [METHOD_LABELS[method] for method in SHOWN]
    means = load_run(comparison / "fedpurin").accuracy("merged").mean(axis=1)
    assert np.asarray(made.data[-1].y) == pytest.approx(means, abs=1e-6)  # float32 in the page
    assert made.data[-1].line.color == METHOD_COLORS["fedpurin"]


def test_a_loaded_run_a_path_and_a_list_are_all_accepted(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    shown = [figure(given, "accuracy", band="none") for given in (run, run.path, str(run.path), [run])]
    assert all(len(made.data) == 1 for made in shown)


def test_the_overlap_figure_has_a_slider_step_per_round(comparison: Path) -> None:
    made = figure(load_run(comparison / "fedpurin"), "overlap")
    assert [step.label for step in made.layout.sliders[0].steps] == ["1", "2", "3", "4", "5", "6"]


NEEDS_VALIDATION = "front"  # tests/tuning draws it


@pytest.mark.parametrize("name", [name for name in FIGURES if name != NEEDS_VALIDATION])
def test_every_figure_is_made_in_both_ways(comparison: Path, tmp_path: Path, name: str) -> None:
    assert figure(comparison, name).data
    file = save_figure(comparison, name, tmp_path / f"{name}.png")
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_svg_keeps_text_and_the_same_runs_give_the_same_file(comparison: Path, tmp_path: Path) -> None:
    first, second = (save_figure(comparison, "accuracy", tmp_path / f"{i}.svg").read_text() for i in (1, 2))
    assert first == second
    assert ">FedPURIN</text>" in first
    assert save_figure(comparison, "accuracy", tmp_path / "x.pdf").read_bytes()[:5] == b"%PDF-"


MASKS = ("overlap", "graph", "groups", "coverage", "selection")
ABSENT = {
    "fedavg": ("gain", *MASKS),
    "separate": ("gain", "traffic", "reach", "cost", "bytes", *MASKS),
    "unmeasured": ("accuracy", "gain", "traffic", "reach", *MASKS),
    "without classes": ("classes", "gain", *MASKS),
}


@pytest.fixture(scope="session")
def bare(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that have nothing to show in some figures."""
    root = tmp_path_factory.mktemp("bare")
    runs = {name: root / name for name in ABSENT}
    for name, path in runs.items():
        shutil.copytree(comparison / ("separate" if name == "separate" else "fedavg"), path)
    lines = [json.loads(line) for line in (runs["unmeasured"] / "metrics.jsonl").read_text().splitlines()]
    for part in [line[m] for line in lines for m in ("trained", "upload", "merged") if m in line]:
        part["accuracy"] = part["loss"] = [None] * len(part["accuracy"])
    (runs["unmeasured"] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (runs["unmeasured"] / "result.json").unlink()  # of before
    people = json.loads((runs["without classes"] / "clients.json").read_text())
    (runs["without classes"] / "clients.json").write_text(json.dumps({"classes": people["classes"]}))
    return runs


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in ABSENT.items() for name in names])
def test_what_a_run_cannot_show_is_refused_with_the_reason_and_nothing_is_written(
    bare: dict[str, Path], tmp_path: Path, kind: str, name: str
) -> None:
    with pytest.raises(RunError, match=f"no figure '{name}' of these runs: ") as drawn:
        figure(bare[kind], name)
    with pytest.raises(RunError) as saved:
        save_figure(bare[kind], name, tmp_path / "x.png")
    assert str(saved.value) == str(drawn.value)
    assert list(tmp_path.iterdir()) == []


def test_both_ways_draw_the_same_choice(comparison: Path, tmp_path: Path) -> None:
    drawn = figure(comparison, "overlap", run="FedCAC, seed 1", round=4)
    assert drawn.layout.sliders[0].active == 3
    svg = save_figure(comparison, "overlap", tmp_path / "x.svg", run="FedCAC, seed 1", round=4).read_text()
    assert ">FedCAC: overlap of critical masks, round 4</text>" in svg
    ids, matrix = load_run(comparison / "fedcac").overlap(4) or ([], np.zeros(0))
    shown = np.asarray(drawn.data[0].z)
    off = ~np.eye(len(ids), dtype=bool)
    assert sorted(shown[off]) == pytest.approx(sorted(matrix[off]), abs=1e-6)
    bars = figure(comparison, "bytes", method="FedCAC")
    assert bars.layout.title.text == "FedCAC: bytes per client and round"


def test_layers_named_by_numbers_keep_their_own_percentages(tmp_path: Path) -> None:
    names = ("4.weight", "2.weight", "0.weight", "1.weight", "3.bias")  # as nn.Sequential names them
    run = load_run(make_run(tmp_path / "run", Spec(clients=3, rounds=2, layers=names)))
    drawn = figure(run, "coverage")
    rows = ["4", "2", "0", "1", "3.bias"]
    assert list(drawn.data[0].y) == list(drawn.layout.yaxis.categoryarray) == rows
    assert drawn.layout.yaxis.type == "category"
    beside = {note.y: note.text for note in drawn.layout.annotations if note.yref != "paper"}
    # A position, because plotly would take the name "4" for the fourth row.
    shares = run.kept()[1][:, -1]
    assert beside == {row: f"{100 * share:.0f}\u00a0%" for row, share in enumerate(shares)}
    assert set(map(type, beside)) == {int}


def test_who_holds_what_names_both_axes(comparison: Path, tmp_path: Path) -> None:
    drawn = figure(comparison, "classes")
    titles = [drawn.layout.yaxis.title.text, *(note.text for note in drawn.layout.annotations)]
    assert {"class", "client, by most frequent class", "training samples"} == set(titles)
    svg = save_figure(comparison, "classes", tmp_path / "x.svg").read_text()
    assert ">Class</text>" in svg
    assert ">Client, by most frequent class</text>" in svg


NEW_CHART = """
from fedpurin.report.chart import Chart, Definition, View
from fedpurin.report.marks import Axis, Bars, Panel, Picture

def build(groups):
    bars = Bars(range(len(groups)), [g.last_mean("upload") for g in groups], "accuracy", "#0072b2")
    panel = Panel(Axis(names=[g.label for g in groups]), Axis("mean accuracy", kind="share"), [bars])
    return Chart(lambda: View([Picture("The end", 300, [panel])], "A sentence."))

CHART = Definition("end", "The end", 5, build)
"""


def test_a_new_chart_needs_one_new_file(
    comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "charts"
    folder.mkdir()
    (folder / "the_end.py").write_text(NEW_CHART)
    monkeypatch.setattr(charts, "__path__", [*charts.__path__, str(folder)])
    charts.all_charts.cache_clear()
    try:
        assert list(figure(comparison, "end").data[0].x) == [METHOD_LABELS[method] for method in SHOWN]
        assert save_figure(comparison, "end", tmp_path / "end.svg").read_text().count(">FedBN</text>") == 1
        page = write_report([comparison / "fedavg"], tmp_path / "report.html").read_text("utf-8")
        assert page.index('<section class="chart" id="end">') < page.index('id="accuracy"')
    finally:
        charts.all_charts.cache_clear()


def test_wrong_names_and_choices_are_named(comparison: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no figure 'acuracy'; choose one of front, accuracy"):
        figure(comparison, "acuracy")
    with pytest.raises(RunError, match="no moment 'later'; choose one of upload"):
        figure(comparison, "accuracy", moment="later")
    with pytest.raises(RunError, match="no choice colour"):
        figure(comparison, "accuracy", colour="red")
    with pytest.raises(RunError, match="should end in one of"):
        save_figure(comparison, "accuracy", tmp_path / "x.bmp")
    with pytest.raises(RunError, match="no choice colour"):
        save_figure(comparison, "accuracy", tmp_path / "x.png", colour="red")


def test_without_plotly_the_extra_is_named(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"fedpurin\[report\]"):
        figure(comparison, "accuracy")
    load_run(comparison / "fedavg")  # reading needs no plotting library


def test_without_matplotlib_the_extra_is_named(
    comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"fedpurin\[report\]"):
        save_figure(comparison, "accuracy", tmp_path / "x.png")
