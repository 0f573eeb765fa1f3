"""Traffic until a level of accuracy is reached, against numbers worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpurin.runs.run import load_run
from fedpurin.runs.traffic import cumulative_mib, running_mean, traffic_to

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from make_run import Spec, make_run

MIB_T = np.array([2.0, 4.0, 6.0, 8.0, 10.0])


def test_the_level_is_reached_at_the_end_of_the_third_round_of_its_mean() -> None:
    accuracy = np.array([0.50, 0.58, 0.61, 0.64, 0.70])
    # means of three rounds: 0.5633, 0.61, 0.65, which end in rounds 3, 4 and 5
    assert traffic_to(accuracy, MIB_T, 0.56) == 6.0
    assert traffic_to(accuracy, MIB_T, 0.60) == 8.0
    assert traffic_to(accuracy, MIB_T, 0.65) == 10.0  # exactly at the level counts
    assert traffic_to(accuracy, MIB_T, 0.66) is None


def test_one_lucky_round_does_not_reach_a_level() -> None:
    accuracy = np.array([0.50, 0.90, 0.50, 0.50, 0.50])
    assert traffic_to(accuracy, MIB_T, 0.65) is None
    assert traffic_to(accuracy, MIB_T, 0.65, window=1) == 4.0


def test_a_level_held_exactly_is_reached_whatever_the_rounding() -> None:
    accuracy = np.full(5, 0.7)
    assert np.mean(accuracy[:3]) < 0.7  # in floating point
    assert traffic_to(accuracy, MIB_T, 0.7) == 6.0


def test_rounds_that_were_not_measured_reach_nothing() -> None:
    accuracy = np.array([0.70, np.nan, 0.70, 0.70, 0.70])
    assert traffic_to(accuracy, MIB_T, 0.6) == 10.0
    assert traffic_to(np.array([0.7, 0.7]), MIB_T[:2], 0.6) is None  # fewer rounds than the window
    assert traffic_to(np.zeros(0), np.zeros(0), 0.6) is None


def test_the_running_mean_looks_back() -> None:
    np.testing.assert_allclose(running_mean(np.array([1.0, 2.0, 6.0, 7.0])), [np.nan, np.nan, 3.0, 5.0])


@pytest.mark.parametrize(("moment", "ups", "downs"), [("trained", 1, 1), ("upload", 2, 1), ("merged", 2, 2)])
def test_traffic_counts_what_had_travelled_at_the_moment(
    tmp_path: Path, moment: str, ups: int, downs: int
) -> None:
    run = load_run(make_run(tmp_path / "run", Spec(clients=8, rounds=6, beta=4)))
    lines = [json.loads(line) for line in (run.path / "ledger.jsonl").read_text().splitlines()]
    total = sum(
        sum(line["bytes"].values())
        for line in lines
        if line["round"] <= (ups if line["direction"] == "up" else downs)
    )
    assert cumulative_mib(run, moment)[1] == pytest.approx(total / 2**20 / 8)  # second round, 8 clients
