"""Figures from Python: the right series in plotly, and PNG, SVG, PDF files through matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedpurin.errors import MissingExtraError, RunError
from fedpurin.report import FIGURES, METHOD_COLORS, METHOD_LABELS, figure, load_run, save_figure
from fedpurin.report.style import METHOD_MARKS, METHODS


def test_every_method_has_its_own_colour_label_dash_and_marker() -> None:
    assert set(METHOD_COLORS) == set(METHOD_LABELS) == set(METHOD_MARKS) == set(METHODS)
    assert len(set(METHOD_COLORS.values())) == len(METHODS)
    assert len({marks[1] for marks in METHOD_MARKS.values()}) == len(METHODS)


def test_the_accuracy_figure_has_a_line_per_method_with_the_runs_means(comparison: Path) -> None:
    made = figure(comparison, "accuracy", moment="merged", band="none")
    assert [trace.name for trace in made.data] == [METHOD_LABELS[method] for method in METHODS]
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


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_made_in_both_ways(comparison: Path, tmp_path: Path, name: str) -> None:
    assert figure(comparison, name).data
    file = save_figure(comparison, name, tmp_path / f"{name}.png")
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_svg_keeps_text_and_the_same_runs_give_the_same_file(comparison: Path, tmp_path: Path) -> None:
    first, second = (save_figure(comparison, "accuracy", tmp_path / f"{i}.svg").read_text() for i in (1, 2))
    assert first == second
    assert ">FedPURIN</text>" in first
    assert save_figure(comparison, "accuracy", tmp_path / "x.pdf").read_bytes()[:5] == b"%PDF-"


@pytest.mark.parametrize("name", ["gain", "overlap", "graph", "groups", "coverage", "selection"])
def test_what_a_run_cannot_show_is_refused_with_the_reason(
    comparison: Path, tmp_path: Path, name: str
) -> None:
    run = load_run(comparison / "fedavg")
    with pytest.raises(RunError, match=f"no figure '{name}' of these runs"):
        figure(run, name)
    with pytest.raises(RunError, match=f"no figure '{name}' of these runs"):
        save_figure(run, name, tmp_path / "x.png")


def test_wrong_names_and_choices_are_named(comparison: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no figure 'acuracy'; choose one of accuracy"):
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
