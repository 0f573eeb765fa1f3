"""Tables: ranks, the paper beside ours, statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reproduce_tools import MIB, Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.communication import draw_lines, saving, traffic
from fedpurin.reproduce.markup import Entry, MarkupTable, rank_columns
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.result_store import Record, ResultStore
from fedpurin.reproduce.scales import Request, own
from fedpurin.reproduce.source import Paper
from fedpurin.reproduce.stats import bootstrap, paired

CIFAR = ("--scale", "paper", "--dataset", "cifar-10", "--alpha", "0.5", "--seeds", "1", "--no-run")


def config(method: str = "fedpurin", **request: object) -> Config:
    return Request(scale="paper", **request).config("cifar-10", 0.5, 1, method)  # type: ignore[arg-type]


def test_best_is_bold_and_second_underlined_and_unfinished_is_neither() -> None:
    rows = rank_columns(
        [["a", Entry(1.0)], ["b", Entry(3.0, note="† 5 rounds")], ["c", Entry(2.0)], ["d", Entry(0.5)]]
    )
    text = MarkupTable("", ["", "x"], rows, []).markdown()
    assert "| a | <u>1.00</u> |" in text
    assert "| b | 3.00 † 5 rounds |" in text
    assert "| c | **2.00** |" in text
    assert "| d | 0.50 |" in text


def test_values_printed_alike_share_their_rank() -> None:
    rows = rank_columns([["a", Entry(2.001)], ["b", Entry(2.0)], ["c", Entry(1.0)]])
    assert [row[1].rank for row in rows] == [1, 1, 2]  # type: ignore[union-attr]


def test_latex_is_escaped_and_marked() -> None:
    table = MarkupTable("100 % of a_b", ["", "α=0.5"], [["x & y", Entry(2.0, 0.1, 3.0, rank=1)]], [])
    text = table.latex()
    assert "100 \\% of a\\_b" in text
    assert "x \\& y & \\textbf{2.00} $\\pm$ 0.10 (3.00, $-$1.00) \\\\" in text
    assert "$\\alpha$=0.5" in text


def test_the_papers_value_and_the_difference_stand_in_the_cell(
    experiments: Path, reproduce: Reproduce
) -> None:
    ResultStore(experiments / "results").append("runs", make_line(config(), 0.72))
    ResultStore(experiments / "results").append("runs", make_line(config("fedavg"), 0.60, done=40))
    _, text = reproduce("table-accuracy", *CIFAR)
    assert "| FedPURIN | 72.00 (71.53, +0.47) |" in text  # 71.53: the paper's main table
    assert "| FedAvg | 60.00 (66.33, -6.33) † 40 rounds |" in text


def test_types_of_values_are_compared_with_float32_of_the_same_method(
    experiments: Path, reproduce: Reproduce
) -> None:
    store = ResultStore(experiments / "results")
    for method, accuracy, up in (("fedpurin", 0.50, MIB), ("fedavg", 0.60, 2 * MIB)):
        for values, lost, share in (("float32", 0.0, 1), ("int8", 0.01, 4)):
            changes = {"run": {"rounds": 15}, "method": {"beta": 30}, "wire": {"values": values}}
            c = config(method).updated(own(changes, method))
            line = make_line(c, accuracy - lost, up=up // share)
            line["clients"]["upload"][:10] = [[0] * 20] * 10  # only the last five rounds count
            store.append("runs", line)
    _, text = reproduce("table-values", "--no-run")
    assert "| FedPURIN, float32 | 50.00 | 50.00 | reference | reference | 1.00 | 2.00 | 50.0 % |" in text
    gap = "-1.00 [-1.00, -1.00] worse on this split"
    assert f"| FedPURIN, int8 | 49.00 | 49.00 | {gap} | {gap} | 0.25 | 2.00 | 12.5 % |" in text
    assert f"| FedAvg, int8 | 59.00 | 59.00 | {gap} | {gap} | 0.50 | 2.00 | 25.0 % |" in text
    assert "| FedPURIN, int8 with feedback | - |" in text


def test_beta_is_scaled_along_with_the_rounds() -> None:
    assert config().method.beta == 100
    assert config(rounds=60).method.beta == 30
    assert Request(scale="quick").config("cifar-100", 0.1, 1, "fedpurin").method.beta == 17


def test_paired_differences_see_a_small_shift_that_unpaired_spread_would_hide() -> None:
    ours = Record(make_line(config(rounds=20), 0.61, noise=0.3))
    theirs = Record(make_line(config("fedavg", rounds=20), 0.60, noise=0.3))
    gap = paired([ours], [theirs])
    assert gap is not None
    assert gap.verdict == "better"
    assert gap.mean == pytest.approx(1.0)


def test_a_difference_whose_interval_has_zero_is_not_distinguishable() -> None:
    ours = Record(make_line(config(rounds=20), 0.60, noise=0.1))
    theirs = Record(make_line(config("fedavg", rounds=20), 0.60))
    gap = paired([ours], [theirs])
    assert gap is not None
    assert gap.low < 0 < gap.high
    assert gap.verdict == "not distinguishable"


def test_clients_of_another_split_are_never_paired() -> None:
    ours = Record(make_line(config(rounds=20), split="a"))
    theirs = Record(make_line(config("fedavg", rounds=20), split="b"))
    assert paired([ours], [theirs]) is None


def test_an_unfinished_run_is_compared_at_the_rounds_both_have() -> None:
    ours = Record(make_line(config(rounds=60), 0.7, done=7))
    theirs = Record(make_line(config("fedavg", rounds=60), 0.6))
    gap = paired([ours], [theirs])
    assert gap is not None
    assert gap.rounds == 7


def test_the_bootstrap_interval_covers_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = bootstrap([rng.normal(size=30)], resamples=500)
        covered += low <= 0 <= high
    # 95 % nominal; percentile intervals over 30 values undercover a little, hence the lower bound
    assert 0.87 <= covered / 200 <= 0.99


def test_traffic_is_split_at_beta_and_savings_use_betas_share() -> None:
    purin = [Record(make_line(config(rounds=20), up=MIB, down=3 * MIB, down_after=MIB))]
    dense = [Record(make_line(config("fedavg", rounds=20), up=4 * MIB, down=4 * MIB))]
    purin[0].line["bytes"]["outside"] = []  # a ledger that does not tell: downloads count as they were sent
    assert traffic(purin) == [1, 1, 3, 1]
    assert traffic(dense) == [4, 4, 4, 4]
    assert saving(purin, dense, 0.5) == (75.0, 50.0)  # 1 of 4; mean of 3 and 1, of 4


def test_until_beta_the_critical_part_counts_as_sent_to_everybody() -> None:
    # 800 exchanged parameters: 100 bytes of mask; 400 critical values up, 400 others down, per make_line
    line = make_line(config(rounds=20), up=100 + 4 * 400, down=4 * 400, down_after=4 * 100)
    before, after = traffic([Record(line)])[2:]
    assert before == pytest.approx(4 * 800 / MIB)  # sent: only 400, for lack of collaborators
    assert after == pytest.approx(4 * 100 / MIB)


def test_an_unfinished_run_has_no_replies_to_its_last_round_yet() -> None:
    record = Record(make_line(config(rounds=60), done=7))
    assert len(record.mib("up")) == 7
    assert len(record.mib("down")) == 6


def test_the_papers_numbers_are_complete() -> None:
    paper = Paper.load()
    assert len(paper.columns) == 9
    for kind in ("accuracy", "deviation", "terms"):
        assert all(len(row) == 9 for row in paper.table[kind].values()), kind
    # The gradient row of the ablation is FedPURIN's row of the main table.
    assert paper.table["terms"]["gradient"] == paper.table["accuracy"]["fedpurin"]
    # 1,235,274 parameters of 4 bytes are 4.71 MiB.
    assert paper.traffic("cifar-10", 0.5, "fedavg") is None
    assert paper.traffic("cifar-10", 0.1, "fedavg") == [round(1_235_274 * 4 / MIB, 2)] * 4


def test_bytes_over_rounds_are_drawn_as_recorded_beside_the_papers_means() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axis = figure.subplots()
    record = Record(make_line(config(rounds=4), down=3 * MIB, down_after=MIB))  # beta = 2
    draw_lines(axis, [record], "FedPURIN", "down", [4.31, 0.48])
    ruled, sent = axis.get_lines()
    counted = 1 + (4 * 400 - 100) / MIB  # 400 values outside the mask, and 1 MiB up without 100 bytes of mask
    assert ruled.get_ydata().tolist() == [counted, counted, 1, 1]
    assert sent.get_ydata().tolist() == [3, 3, 1, 1]
    before, after = (level.get_segments()[0].tolist() for level in axis.collections)
    assert (before, after) == ([[1, 4.31], [2, 4.31]], [[2, 0.48], [4, 0.48]])


def test_the_figure_of_bytes_runs_no_other_cells_than_the_table() -> None:
    keys = [
        [cell.key for cell in RECIPES[name].cells(Request(scale="quick"))]
        for name in ("figure-bytes", "table-communication")
    ]
    assert keys[0] == keys[1]
