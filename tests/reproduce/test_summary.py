"""The first page says what the store says, and names what has not been run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reproduce_tools import MIB, Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request


@pytest.fixture
def store(experiments: Path) -> ResultStore:
    return ResultStore(experiments / "results")


def config(name: str, seed: int = 1, /, **changes: dict[str, Any]) -> Config:
    return Request(scale="paper", rounds=60).config("cifar-10", 0.5, seed, name).updated(changes)


def line_of(text: str, words: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"- **{words}"))


def test_an_empty_store_says_only_what_is_missing(reproduce: Reproduce) -> None:
    _, text = reproduce("findings-summary")
    assert line_of(text, "Groups").endswith("FedCAC, β = 1 (no groups).")
    assert line_of(text, "The paper's full length").endswith("FedPURIN is not run to the end.")
    assert len(text.split("\n- ")) == 2


def test_rivals_are_named_in_the_order_of_their_bytes(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7, up=MIB, down=MIB))
    store.append("runs", make_line(config("fedbn", wire={"values": "int8"}), 0.7, up=MIB // 2, down=MIB // 2))
    store.append("runs", make_line(config("fedbn"), 0.6))
    store.append("runs", make_line(config("fedcac"), 0.7, done=30))
    said = line_of(reproduce("findings-summary")[1], "Bytes to an accuracy")
    # the third round is measured after two rounds of one and of two MiB
    assert (
        "FedBN, int8 (seed 1) 2.0 / 2.0; FedPURIN (seed 1) 4.0 / 4.0; "
        "FedBN (seed 1) never / never, highest 60.0 %; not run to the end:" in said
    )
    assert "FedCAC" in said.partition("not run to the end")[2]


def test_each_method_s_best_round_is_over_its_own_seeds_and_says_which(
    store: ResultStore, reproduce: Reproduce
) -> None:
    store.append("runs", make_line(config("fedpurin", 1), 0.6))
    store.append("runs", make_line(config("fedpurin", 2), 0.7))
    store.append("runs", make_line(config("fedbn"), 0.66))
    store.append("runs", make_line(config("fedcac"), 0.8, done=30))  # on its way: not yet among them
    said = line_of(reproduce("findings-summary")[1], "Best round")
    assert said.endswith(": FedBN 66.00 (69.47; seed 1), FedPURIN 65.00 (71.53; seeds 1, 2).")


def test_curves_are_told_seed_by_seed(store: ResultStore, reproduce: Reproduce) -> None:
    for seed, rival in ((1, 0.68), (2, 0.72)):
        store.append("runs", make_line(config("fedpurin", seed), 0.7))
        store.append("runs", make_line(config("fedbn", seed), rival))
    text = reproduce("findings-curves")[1]
    assert (
        "above FedBN, as uploaded, in 60 of 60 rounds, from 1 on in all (seed 1); "
        "in 0 of 60 rounds, not in the last one (seed 2)." in text
    )
    # 69 % in the mean of three rounds: in the third at the earliest
    assert "is passed: FedPURIN 3, 3 (seeds 1, 2); FedBN never, 3 (seeds 1, 2)." in text


def test_differences_carry_their_seeds_and_interval(store: ResultStore, reproduce: Reproduce) -> None:
    for seed in (1, 2):
        store.append("runs", make_line(config("fedpurin", seed), 0.7))
        store.append("runs", make_line(config("fedbn", seed), 0.68))
    store.append("runs", make_line(config("fedpurin", run={"order_seed": 2}), 0.71))
    text = reproduce("findings-summary")[1]
    gap = "+2.00 [+2.00, +2.00] (better)"
    assert f"2 seeds. Last ten rounds: {gap} after training, {gap} as uploaded." in line_of(
        text, "FedPURIN − FedBN"
    )
    assert "another order of samples +1.00" in line_of(text, "Size of noise")


def test_groups_are_said_when_they_are_run_to_the_end(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append("runs", make_line(config("fedpurin", method={"beta": 1}), 0.6, done=25))
    said = line_of(reproduce("findings-summary")[1], "Groups")
    assert "FedPURIN, β = 1 (no groups) (25 rounds so far)" in said
    assert "-10.00" not in said
    store.append("runs", make_line(config("fedpurin", method={"beta": 1}), 0.6))
    said = line_of(reproduce("findings-summary")[1], "Groups")
    assert "FedPURIN, β = 1 (no groups): -10.00 [-10.00, -10.00] (worse on this split), 1 seed." in said


def test_the_full_length_is_said_beside_the_paper_and_shown(store: ResultStore, reproduce: Reproduce) -> None:
    assert "- nothing measured yet" in reproduce("findings-full")[1]
    full = Request(scale="paper").config("cifar-10", 0.1, 1, "fedpurin")
    store.append("runs", make_line(full, 0.86, done=120))
    assert "(120 rounds so far)" in line_of(reproduce("findings-summary")[1], "The paper's full length")
    line = make_line(full, 0.86, up=2 * MIB, down=3 * MIB, down_after=MIB)
    line["bytes"]["outside"] = []  # a ledger that does not tell: downloads count as they were sent
    store.append("runs", line)
    said = line_of(reproduce("findings-summary")[1], "The paper's full length")
    assert "FedPURIN 86.00 % (85.90)" in said  # in brackets the paper's tables
    assert "2.00 (2.44) and 2.00 (1.94), down 3.00 (4.31) and 1.00 (0.48)" in said
    assert "(figures/bytes-paper-cifar-10-a0.1.png)" in reproduce("findings-full")[1]


def test_rivals_are_compared_with_fedfrugal_on_the_seeds_they_share(
    store: ResultStore, reproduce: Reproduce
) -> None:
    for seed in (1, 2):
        store.append("runs", make_line(config("fedfrugal", seed), 0.71, up=MIB // 2, down=MIB // 2))
    store.append("runs", make_line(config("fedpurin"), 0.68))
    text = reproduce("findings-seeds")[1]
    # the third round is measured after two rounds of one MiB
    assert "- FedFrugal. seed 1: 69 % with 2.0 MiB, 71.00 % at the end, 60.0 MiB in all; seed 2:" in text
    assert "- FedPURIN. seed 1: 69 % never, 68.00 % at the end" in text
    assert (
        "FedFrugal − FedPURIN, last ten rounds, 1 seed: +3.00 [+3.00, +3.00] (better on this split)." in text
    )
