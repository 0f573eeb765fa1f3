"""Traffic to accuracy: levels, lines, dots and the table, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_run import Spec, make_run

from fedpurin.errors import RunError
from fedpurin.report import figure
from fedpurin.report.chart import Chart, Table
from fedpurin.report.charts.traffic_to_accuracy import build, choose_levels
from fedpurin.report.figures import as_groups
from fedpurin.runs.run import load_run
from fedpurin.runs.traffic import cumulative_mib

CURVE = (0.50, 0.58, 0.61, 0.64, 0.70, 0.73)  # means of three: 0.5633, 0.61, 0.65, 0.69


def table(runs: Path, moment: str = "upload") -> Table:
    chart = build(as_groups(runs))
    assert isinstance(chart, Chart)
    made = chart.view(moment=moment, task="t0").table
    assert made is not None
    return made


def test_cifar_10_has_its_three_levels_and_the_mib_at_the_end_of_the_third_round(tmp_path: Path) -> None:
    make_run(tmp_path / "a", Spec("fedpurin", clients=3, rounds=6, dataset="cifar-10", curve=CURVE))
    slow = tuple(value - 0.05 for value in CURVE)
    make_run(tmp_path / "b", Spec("fedavg", clients=3, rounds=6, dataset="cifar-10", curve=slow))
    make_run(tmp_path / "c", Spec("separate", clients=3, rounds=6, dataset="cifar-10", curve=(0.62,) * 6))
    shown = table(tmp_path)
    assert [column.title.replace("\u00a0", " ") for column in shown.columns] == [
        "MiB to 60 %",
        "MiB to 65 %",
        "MiB to 69 %",
        "Last 2, accuracy",
    ]
    rows = {
        row.label: [row.cells[column.key].replace("\u00a0", " ") for column in shown.columns]
        for row in shown.rows
    }
    mine = cumulative_mib(load_run(tmp_path / "a"))
    # FedPURIN's means of three reach the levels at the ends of the rounds 4, 5 and 6
    assert rows["FedPURIN"] == [f"{mine[3]:.1f}", f"{mine[4]:.1f}", f"{mine[5]:.1f}", "71.5 %"]
    dense = cumulative_mib(load_run(tmp_path / "b"))
    assert rows["FedAvg"] == [f"{dense[4]:.1f}", "not reached", "not reached", "66.5 %"]
    assert rows["Separate"] == ["0.0", "not reached", "not reached", "62.0 %"]  # it sends nothing


def test_elsewhere_the_levels_come_from_the_range_of_the_data(tmp_path: Path) -> None:
    make_run(tmp_path / "a", Spec("fedavg", clients=3, rounds=5, curve=(0.3, 0.3, 0.3, 0.6, 0.9)))
    # means of three go from 0.3 to 0.6: steps at 0.4, 0.5 and 0.6
    assert choose_levels(as_groups(tmp_path / "a"), "upload") == [0.4, 0.5, 0.6]


def test_a_cifar_10_run_far_below_the_usual_levels_gets_its_own(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "a", Spec("fedavg", clients=3, rounds=3, dataset="cifar-10", curve=(0.2, 0.3, 0.4))
    )
    assert choose_levels(as_groups(run), "upload") == [0.3]


def test_seeds_that_do_not_reach_a_level_are_counted(tmp_path: Path) -> None:
    for seed, less in ((1, 0.0), (2, 0.06)):
        curve = tuple(value - less for value in CURVE)
        spec = Spec("fedavg", clients=3, rounds=6, seed=seed, dataset="cifar-10", curve=curve)
        make_run(tmp_path / f"s{seed}", spec)
    cells = table(tmp_path).rows[0].cells
    mib = cumulative_mib(load_run(tmp_path / "s1"))
    assert cells["0.60"] == f"{(mib[3] + mib[5]) / 2:.1f}"  # the second seed's means end at 0.63
    assert cells["0.65"] == f"{mib[4]:.1f} (1 of 2 seeds)"


def test_the_figure_has_a_log_axis_a_line_per_method_and_dots_on_the_levels(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "a", Spec(clients=3, rounds=6, dataset="cifar-10", curve=CURVE)))
    drawn = figure(run, "reach")
    assert drawn.layout.xaxis.type == "log"
    line = next(trace for trace in drawn.data if trace.showlegend)
    assert np.asarray(line.x) == pytest.approx(cumulative_mib(run), rel=1e-6)
    assert np.asarray(line.y)[2:] == pytest.approx([0.5633333, 0.61, 0.65, 0.69], abs=1e-6)
    dots = next(trace for trace in drawn.data if trace.mode == "markers")
    assert np.asarray(dots.y) == pytest.approx([0.61, 0.65, 0.69], abs=1e-6)


def test_two_rounds_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="mean of 3 rounds"):
        figure(make_run(tmp_path / "a", Spec("fedavg", clients=3, rounds=2)), "reach")
