"""MiB until an accuracy is reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reproduce_tools import MIB, Reproduce, make_line

from fedpurin.reproduce.frontier import draw_lines, mib_until
from fedpurin.reproduce.paper_figures import new_figure
from fedpurin.reproduce.result_store import Record, ResultStore
from fedpurin.reproduce.scales import Request, trains_as_published
from fedpurin.runs.traffic import traffic_to

CHECKOUT = Path(__file__).resolve().parents[2]
CIFAR = ("--scale", "paper", "--dataset", "cifar-10", "--alpha", "0.5", "--rounds", "60")


def test_the_mean_of_three_rounds_has_to_reach_the_level() -> None:
    accuracy, mib = np.array([0.9, 0.1, 0.7, 0.7, 0.7]), np.arange(1.0, 6.0)
    assert traffic_to(accuracy, mib, 0.7) == 5.0  # one lucky round does not count
    assert traffic_to(accuracy, mib, 0.71) is None


def test_what_a_round_had_sent_by_the_moment_of_measuring_counts() -> None:
    record = Record(make_line(Request(scale="paper", rounds=3).config("cifar-10", 0.5, 1, "fedavg")))
    assert mib_until(record, "trained").tolist() == [0, 3, 6]  # 1 MiB up and 2 down in every round
    assert mib_until(record, "upload").tolist() == [1, 4, 7]
    assert mib_until(record, "merged").tolist() == [3, 6, 9]


def test_the_table_says_when_a_level_was_reached_and_in_how_many_seeds(
    experiments: Path, reproduce: Reproduce
) -> None:
    store = ResultStore(experiments / "results")
    for seed, accuracy in ((1, 0.66), (2, 0.61)):
        config = Request(scale="paper", rounds=60).config("cifar-10", 0.5, seed, "fedbn")
        store.append("runs", make_line(config, accuracy))
    _, text = reproduce("table-traffic", *CIFAR)
    row = next(line for line in text.splitlines() if "FedBN | after training" in line)
    # the third round is measured after two rounds of 1 MiB up and 2 down
    assert row.split(" | ")[2:5] == ["6.0", "6.0 (1 of 2 seeds)", "never"]
    assert "63.50 ± 3.54" in row
    assert "| 180 | 60 | 2 |" in row


def test_runs_of_another_size_are_not_compared(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    config = Request(scale="paper", rounds=60).config("cifar-10", 0.5, 1, "fedbn")
    store.append("runs", make_line(config.updated({"run": {"clients": 5}})))
    store.append("runs", make_line(config.updated({"run": {"participation": 0.5}})))
    assert "FedBN" not in reproduce("table-traffic", *CIFAR)[1]
    store.append("runs", make_line(config.updated({"wire": {"values": "int8"}})))
    store.append("runs", make_line(config))
    text = reproduce("table-traffic", *CIFAR)[1]
    assert "FedBN (values int8)" in text
    assert "FedBN (values float32)" in text


def test_the_figures_of_the_committed_store_are_those_that_were_announced(reproduce: Reproduce) -> None:
    """Seed 1 of docs/frontier.md: 160 MiB to 69 % for FedBN, 188 for FedPURIN, 305 for FedCAC."""
    records = {
        r.config.run.method: r
        for r in ResultStore(CHECKOUT / "experiments" / "results").records()
        if (r.config.data.alpha, r.config.run.rounds, r.config.run.seed) == (0.5, 60, 1)
        and r.config.data.dataset == "cifar-10"
        and trains_as_published(r.config)
        and not r.is_replicate
        and r.beta in (None, 30)
    }
    found = {
        name: traffic_to(100 * records[name].curve("trained"), mib_until(records[name], "trained"), 69)
        for name in ("fedbn", "fedpurin", "fedcac", "fedavg")
    }
    assert found == {"fedbn": pytest.approx(160, abs=1), "fedpurin": pytest.approx(188, abs=1),
                     "fedcac": pytest.approx(305, abs=1), "fedavg": None}  # fmt: skip


def test_the_picture_is_drawn(experiments: Path, tmp_path: Path, reproduce: Reproduce) -> None:
    pytest.importorskip("matplotlib")
    store = ResultStore(experiments / "results")
    for method in ("fedbn", "fedpurin"):
        line = make_line(Request(scale="paper", rounds=60).config("cifar-10", 0.5, 1, method))
        line["bytes"]["up"] = [MIB * (t % 3 + 1) for t in range(60)]
        store.append("runs", line)
    reproduce("figure-traffic", *CIFAR, "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "traffic-paper-cifar-10-a0.5-t60.png").read_bytes().startswith(b"\x89PNG")


def test_one_seed_of_a_setting_stands_out_and_the_others_are_thin() -> None:
    pytest.importorskip("matplotlib")
    config = Request(scale="paper", rounds=60).config
    records = [Record(make_line(config("cifar-10", 0.5, seed, "fedbn"), seed / 10)) for seed in (2, 1, 3)]
    _, axes = new_figure((4, 3))
    draw_lines(axes[0][0], "FedBN", records, ("#009e73", "-"))
    drawn = {round(line.get_ydata()[-1]): line.get_linewidth() for line in axes[0][0].lines}
    assert drawn[10] > drawn[20] == drawn[30]  # percent of seeds 1, 2, 3
    assert axes[0][0].get_legend_handles_labels()[1] == ["FedBN"]
