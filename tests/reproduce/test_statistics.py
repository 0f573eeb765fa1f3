"""Intervals over seeds and clients, windows of ten rounds, the size of noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce_tools import Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.result_store import Record, ResultStore
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.stats import (
    Difference,
    best_window,
    bootstrap,
    noise,
    paired,
    paired_best,
    replicates,
)


def config(method: str = "fedpurin", seed: int = 1, rounds: int = 20) -> Config:
    return Request(scale="paper", rounds=rounds).config("cifar-10", 0.5, seed, method)


def with_seeds(line: dict[str, Any], **seeds: int) -> Record:
    """The record with a seed of its own for split, model or order."""
    run = line["config"]["run"] | {f"{name}_seed": seed for name, seed in seeds.items()}
    return Record(line | {"config": line["config"] | {"run": run}})


def test_seeds_are_drawn_before_clients() -> None:
    """Three splits whose clients are all alike: only the splits make the interval.

    The mean of three draws from 0, 1, 2 is 0 with chance 1/27, which is more than 2.5 %.
    """
    seeds = [np.full(20, float(value)) for value in (0, 1, 2)]
    assert bootstrap(seeds) == (0.0, 2.0)


def test_one_seed_gives_an_interval_over_its_clients() -> None:
    low, high = bootstrap([np.array([0.0, 2.0] * 50)])
    # standard error of the mean of 100 values with deviation 1: 0.1, times 1.96 on either side of 1
    assert (low, high) == pytest.approx((0.8, 1.2), abs=0.03)


def test_a_gain_in_one_split_alone_is_not_distinguishable() -> None:
    theirs = [Record(make_line(config("fedavg", seed), 0.60)) for seed in (1, 2, 3)]
    ours = [
        Record(make_line(config("fedpurin", seed), 0.60 + gain)) for seed, gain in ((1, 0.3), (2, 0), (3, 0))
    ]
    gap = paired(ours, theirs)
    assert gap is not None
    assert (gap.seeds, gap.clients) == (3, 60)
    assert gap.mean == pytest.approx(10)
    assert gap.verdict == "not distinguishable"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.06, 2.0, "better"),
        (-2.0, -0.06, "worse"),
        (0.01, 2.0, "not distinguishable"),  # other random numbers put this end on the other side of zero
        (-2.0, -0.01, "not distinguishable"),
        (-1.0, 1.0, "not distinguishable"),
    ],
)
def test_a_verdict_does_not_hang_on_the_random_numbers_of_the_bootstrap(
    low: float, high: float, verdict: str
) -> None:
    two, one = (Difference((low + high) / 2, low, high, 20 * seeds, seeds, 60) for seeds in (2, 1))
    assert (two.verdict, two.verdict_here) == (verdict, verdict)
    told = verdict != "not distinguishable"
    assert one.verdict_here == (f"{verdict} on this split" if told else verdict)


def test_the_best_window_is_each_runs_own() -> None:
    early, late = make_line(config("fedbn"), 0.5), make_line(config(), 0.5)
    early["clients"]["trained"][2:12] = [[9000] * 20] * 10
    late["clients"]["trained"][10:20] = [[8000] * 20] * 10
    ours, theirs = Record(late), Record(early)
    assert best_window(theirs, "trained") == slice(2, 12)
    assert best_window(ours, "trained") == slice(10, 20)
    best, last = paired_best([ours], [theirs], "trained"), paired([ours], [theirs], "trained")
    assert best is not None
    assert last is not None
    assert best.mean == pytest.approx(80 - 90)
    assert last.mean == pytest.approx(80 - (2 * 90 + 8 * 50) / 10)


def test_best_windows_lie_in_the_rounds_that_both_have() -> None:
    """A run of sixty rounds has more windows to choose from than one that is at round 20."""
    mine, unfinished = make_line(config(rounds=60), 0.5), make_line(config("fedbn", rounds=60), 0.5, done=20)
    mine["clients"]["trained"][40:50] = [[9000] * 20] * 10
    gap = paired_best([Record(mine)], [Record(unfinished)], "trained")
    assert gap is not None
    assert (gap.mean, gap.rounds) == (0, 20)


def test_equal_windows_give_the_first() -> None:
    """Ten values over and over: added up from another start they differ in the last bit."""
    line = make_line(config(rounds=40), 0.7)
    line["clients"]["trained"] = [[7000 + 37 * (t * 7 % 10)] * 20 for t in range(40)]
    assert best_window(Record(line), "trained") == slice(0, 10)


def test_a_window_is_no_longer_than_the_run() -> None:
    assert best_window(Record(make_line(config(rounds=4))), "trained") == slice(0, 4)


def test_replicates_differ_in_one_seed_alone() -> None:
    base = Record(make_line(config()))
    order = with_seeds(make_line(config(), 0.83), order=2)
    others = [
        base,
        order,
        with_seeds(make_line(config()), order=2, model=2),  # two seeds
        Record(make_line(config(seed=2))),  # all three
        with_seeds(make_line(config(rounds=30)), order=2),  # another setting
    ]
    assert replicates(base, others) == [("order of samples", order)]
    ((what, gap),) = noise(base, others)
    assert what == "order of samples"
    assert gap.mean == pytest.approx(3)


def test_another_split_is_a_replicate_whose_clients_are_others() -> None:
    base = Record(make_line(config()))
    other = with_seeds(make_line(config(), split="of seed 9"), split=9)
    assert [what for what, _ in replicates(base, [other])] == ["split"]
    assert noise(base, [other]) == []


def test_tables_show_the_size_of_noise(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    words = ("--scale", "paper", "--dataset", "cifar-10", "--alpha", "0.5", "--seeds", "1", "--rounds", "20")
    for record in (Record(make_line(config("fedavg"), 0.7)), Record(make_line(config(), 0.8))):
        store.append("runs", record.line)
    assert "no replicate here yet" in reproduce("table-paired", *words, "--no-run")[1]
    assert "| no replicate in the store yet |" in reproduce("table-noise", *words)[1]
    store.append("runs", with_seeds(make_line(config(), 0.83), order=2).line)
    assert (
        "fedpurin with another order of samples: +3.00 [+3.00, +3.00]"
        in reproduce("table-paired", *words, "--no-run")[1]
    )
    text = reproduce("table-noise", *words)[1]
    # the deviation of one run is that of the difference over the square root of two: 3 / 1.414
    assert "| CIFAR-10 α=0.5, fedpurin, T = 20 | order of samples | 2.12 | 3.00 | 1 |" in text


def test_replicates_are_cells_of_their_own(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.append("runs", make_line(config()))
    store.append("runs", with_seeds(make_line(config(), 0.83), order=2).line)
    assert len(store.records()) == 2
    plain = store.record(config())
    assert plain is not None
    assert plain.best() == pytest.approx(80)
