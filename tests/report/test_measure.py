"""Whatever a run measures is called by its name, and shown in its unit."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from make_run import Spec, make_run

from fedpurin.cli.show import results_table
from fedpurin.report.figures import figure
from fedpurin.report.measure import Measure, measure_of
from fedpurin.report.page import write_report
from fedpurin.report.watch import Follower

LOSSES = {"cross_entropy": "accuracy", "mse": "R²", "bce": "label accuracy", "python": "accuracy"}


@pytest.mark.parametrize(("loss", "name"), LOSSES.items())
def test_the_usual_metric_of_a_loss_names_the_measure(loss: str, name: str) -> None:
    assert measure_of([{"train": {"loss": loss}}]).name == name


def test_a_function_and_a_mixture_are_called_metric_and_are_no_percentages() -> None:
    own, r2 = {"train": {"metric": "python"}}, {"train": {"loss": "mse"}}
    assert measure_of([own]) == Measure("metric", share=False)
    assert measure_of([r2, {}]) == Measure("metric", share=False)
    assert measure_of([r2, r2]) == Measure("R²", share=False)


def test_numbers_are_shown_in_the_measures_unit() -> None:
    r2, accuracy = Measure("R²", share=False), Measure("label accuracy", share=True)
    assert (r2.text(0.4212), accuracy.text(0.4212)) == ("0.421", "42.1\u00a0%")
    assert (r2.cell(0.4212), accuracy.cell(0.4212)) == ("0.421", "42.12")
    assert (r2.gain(-0.05), accuracy.gain(-5)) == ("−0.050", "−5.0\u00a0points")
    assert r2.words("Accuracy over rounds: mean accuracy") == "R² over rounds: mean R²"
    assert accuracy.words("Accuracy over rounds") == "Label accuracy over rounds"


@pytest.fixture(scope="module")
def regressions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("separate", "fedavg", "fedpurin"):
        made = make_run(folder / method, Spec(method=method, rounds=6))
        config = made / "config.toml"
        text = re.sub(r"\[train\]\n", '[train]\nloss = "mse"\n', config.read_text())
        config.write_text(text if "[train]" in text else text + '\n[train]\nloss = "mse"\n')
    return folder


def test_the_report_of_a_regression_speaks_of_r2_everywhere(regressions: Path, tmp_path: Path) -> None:
    page = write_report([regressions], tmp_path / "report.html").read_text()
    seen = re.sub(r"<style.*?</style>|<script.*?</script>|<pre.*?</pre>", "", page, flags=re.S)
    assert "R² over rounds" in seen
    assert "When is R² measured?" in seen
    assert "ccuracy" not in re.sub(r"<[^>]+>", " ", seen)
    views = page[page.index('"charts":') :]
    assert "ccuracy" not in re.sub(r'"(id|name)":"[^"]*"', "", views[: views.index("</script")])


@pytest.mark.parametrize("name", ["accuracy", "gain", "traffic", "reach"])
def test_figures_have_its_name_and_no_percent_sign(regressions: Path, name: str) -> None:
    layout: Any = figure(regressions, name).to_dict()["layout"]
    texts = str([layout.get("title"), layout["xaxis"].get("title"), layout["yaxis"].get("title")])
    assert "ccuracy" not in texts
    assert "R²" in texts
    assert layout["yaxis"].get("tickformat") != ".0%"


def test_the_table_and_the_live_view_show_numbers(regressions: Path) -> None:
    table = results_table([regressions])
    assert str(table.caption).startswith("Mean R² over clients, last round")
    assert re.fullmatch(r"0\.\d{3}", str(next(iter(table.columns[2].cells))))
    watch = Follower(regressions / "fedpurin", time.monotonic)
    watch.step()
    assert "%" not in watch.progress.line()
