"""Seeds, replicates and unfinished runs that come in one after the other: no table mixes them up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reproduce_tools import MIB, Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.recipes import SILENCE
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request

ROUNDS = ("--scale", "paper", "--dataset", "cifar-10", "--alpha", "0.5", "--rounds", "60", "--no-run")


@pytest.fixture
def store(experiments: Path) -> ResultStore:
    return ResultStore(experiments / "results")


def config(name: str, seed: int = 1, /, **changes: dict[str, Any]) -> Config:
    return Request(scale="paper", rounds=60).config("cifar-10", 0.5, seed, name).updated(changes)


def row_of(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_a_replicate_shows_noise_and_has_no_part_in_the_means(
    store: ResultStore, reproduce: Reproduce
) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append("runs", make_line(config("fedpurin", run={"order_seed": 2}), 0.8))
    _, text = reproduce("table-traffic", *ROUNDS)
    assert "| 70.00 | 180 | 60 | 1 |" in text
    _, text = reproduce("table-worth", *ROUNDS)
    assert row_of(text, "FedPURIN")[1] == "70.00"
    assert "fedpurin with another order of samples: +10.00" in text


def test_an_unfinished_seed_waits_where_another_is_finished(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedbn"), 0.7))
    store.append("runs", make_line(config("fedbn", 2), 0.1, done=20))
    for name in ("table-accuracy", "table-windows", "table-traffic"):
        _, text = reproduce(name, *ROUNDS)
        assert "70.00" in text, name
        assert "†" not in text, name


def test_a_row_of_fewer_seeds_is_shown_but_not_ranked(store: ResultStore, reproduce: Reproduce) -> None:
    """Seed 1 alone may be an easy split."""
    for method, accuracy in (("fedpurin", 0.7), ("fedbn", 0.6)):
        for seed in (1, 2, 3):
            store.append("runs", make_line(config(method, seed), accuracy))
    store.append("runs", make_line(config("fedcac"), 0.9))
    _, text = reproduce("table-accuracy", *ROUNDS)
    assert row_of(text, "FedPURIN")[1].startswith("**70.00**")
    assert row_of(text, "FedCAC")[1] == "90.00 (67.38, +22.62) ‡ 1 of 3 seeds"  # 67.38: the paper's
    assert "‡ fewer seeds than others have" in text
    _, text = reproduce("table-windows", *ROUNDS)
    assert "90.00 ‡ 1 of 3 seeds" in text


def test_an_unfinished_difference_says_up_to_which_round(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append("runs", make_line(config("fedpurin", method={"beta": 1}), 0.6, done=25))
    _, text = reproduce("table-beta", *ROUNDS)
    row = row_of(text, "FedPURIN, β = 1 (no groups)")
    assert row[1] == "60.00 † 25 rounds"
    assert row[4] == "-10.00 [-10.00, -10.00] worse on this split (round 25)"


def test_each_method_without_groups_is_compared_with_itself(store: ResultStore, reproduce: Reproduce) -> None:
    for method, accuracy in (("fedpurin", 0.7), ("fedcac", 0.6)):
        store.append("runs", make_line(config(method), accuracy))
        store.append("runs", make_line(config(method, method={"beta": 1}), accuracy - 0.02))
    store.append("runs", make_line(config("fedpurin", method={"beta": 10}), 0.71))
    _, text = reproduce("table-beta", *ROUNDS)
    assert row_of(text, "FedPURIN, β = T / 6")[4] == "+1.00 [+1.00, +1.00] better on this split"
    assert row_of(text, "FedPURIN, β = 1 (no groups)")[4] == "-2.00 [-2.00, -2.00] worse on this split"
    assert row_of(text, "FedCAC, β = T / 2 (the paper's share)")[4] == "reference"
    assert row_of(text, "FedCAC, β = 1 (no groups)")[4] == "-2.00 [-2.00, -2.00] worse on this split"
    assert "T = 60." in text  # and no beta, which is not one


def test_rivals_stand_beside_fedpurin_with_their_bytes(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append(
        "runs", make_line(config("fedbn", wire={"values": "int8"}), 0.69, up=MIB // 4, down=MIB // 4)
    )
    silent = make_line(config("fedbn", method={"silent_after": SILENCE}), 0.65)
    for way in ("up", "down"):
        silent["bytes"][way][SILENCE:] = [0] * (60 - SILENCE)
    store.append("runs", silent)
    _, text = reproduce("table-worth", *ROUNDS)
    gap = "+1.00 [+1.00, +1.00] better on this split"
    # the third round is measured after two rounds of half a MiB
    assert row_of(text, "FedBN, int8")[1:] == [
        "69.00", "69.00", gap, gap, "0.25", "0.25", "30", "1.0", "1.0", "1.0", "1"
    ]  # fmt: skip
    row = row_of(text, "FedBN, alone after round 20")
    assert row[5:8] == ["0.33", "0.67", "60"]  # 20 rounds of 1 MiB up and 2 down
    assert row[10] == "never"
    assert row_of(text, "FedCAC")[1] == "-"


def test_the_picture_of_rivals_is_drawn(store: ResultStore, tmp_path: Path, reproduce: Reproduce) -> None:
    pytest.importorskip("matplotlib")
    for method in ("fedbn", "fedpurin", "separate"):
        line = make_line(config(method))
        line["bytes"]["up"] = [MIB] * 60
        store.append("runs", line)
    reproduce("figure-worth", *ROUNDS, "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "worth-paper-cifar-10-a0.5-t60.png").read_bytes().startswith(b"\x89PNG")


def test_full_length_cells_appear_beside_the_papers(store: ResultStore, reproduce: Reproduce) -> None:
    words = ("--scale", "paper", "--dataset", "cifar-10", "--alpha", "0.1", "--no-run")
    assert "| not run yet | - |" in reproduce("table-communication", *words)[1]
    full = Request(scale="paper").config("cifar-10", 0.1, 1, "fedpurin")
    store.append("runs", make_line(full, 0.86, done=150, up=2 * MIB))
    assert (
        "CIFAR-10 α=0.1: FedPURIN † 150 rounds | 2.00 (2.44, -0.44)"
        in (
            reproduce("table-communication", *words)[1]  # 2.44 and 85.90: the paper's
        )
    )
    store.append("runs", make_line(full, 0.86, up=2 * MIB))
    assert "CIFAR-10 α=0.1: FedPURIN | 2.00 (2.44, -0.44)" in reproduce("table-communication", *words)[1]
    assert "| FedPURIN | 86.00 (85.90, +0.10) |" in reproduce("table-accuracy", *words)[1]
