"""The sentences of docs/reproduction.md follow the data, whichever way it points."""

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


def said(reproduce: Reproduce, words: str, block: str = "findings-headlines") -> str:
    text = reproduce(block)[1]
    return next((line for line in text.splitlines() if line.startswith(f"- {words}")), "")


def test_an_empty_store_has_no_headline_but_what_is_undecided(reproduce: Reproduce) -> None:
    text = reproduce("findings-headlines")[1]
    assert text.strip().startswith("- **Claims.** 17 claims: 0 hold, 0 fail, 17 are undecided")
    assert "None of the methods" in reproduce("findings-longer")[1]
    assert reproduce("findings-score")[1].count("not run yet") == 3
    assert "nothing counted yet" in reproduce("findings-coverage")[1]


def test_each_rival_stands_under_its_verdict_with_its_splits(
    store: ResultStore, reproduce: Reproduce
) -> None:
    for seed in (1, 2):
        store.append("runs", make_line(config("fedpurin", seed), 0.7))
        store.append("runs", make_line(config("fedbn", seed), 0.69 if seed == 1 else 0.72))
    store.append("runs", make_line(config("fedavg"), 0.6))
    store.append("runs", make_line(config("fedcac"), 0.75))
    text = said(reproduce, "**Accuracy.**")
    assert "FedPURIN is above FedAvg (+10.0, one split);" in text
    assert "; not distinguishable from FedBN (-0.50 [-2.00, +1.00], above on 1 of 2 splits);" in text
    assert "; below FedCAC (-5.0, one split)." in text
    assert "Size of noise: not measured yet." in text


def test_bytes_are_compared_over_shared_seeds_both_ways(store: ResultStore, reproduce: Reproduce) -> None:
    """FedBN sends twice as much a round; where it is at 65 % at once and FedPURIN late, it needs less."""
    late = make_line(config("fedpurin"), 0.7, up=MIB, down=MIB)
    late["clients"]["trained"] = [[5000] * 20] * 30 + [[7000] * 20] * 30
    store.append("runs", late)
    store.append("runs", make_line(config("fedpurin", 2), 0.7, up=99 * MIB))  # a seed that no other has
    store.append("runs", make_line(config("fedbn"), 0.7, up=2 * MIB, down=2 * MIB))
    store.append("runs", make_line(config("fedavg"), 0.6, up=4 * MIB, down=4 * MIB))
    store.append(
        "runs", make_line(config("fedbn", wire={"values": "int8"}), 0.68, up=MIB // 2, down=MIB // 2)
    )
    text = said(reproduce, "**Worth its bytes?**")
    # in the mean of three rounds FedPURIN is at 65 % after 32 rounds of 2 MiB, FedBN after 2 of 4
    assert "less for the whole run only beside FedAvg (25 / - %, seed 1), FedBN (50 / 800 %, seed 1)" in text
    assert "; more beside FedBN, int8 (200 / 3200 %, seed 1; FedPURIN +2.00 [+2.00, +2.00] points)" in text


def test_a_score_that_arrives_is_named_with_its_verdict(store: ResultStore, reproduce: Reproduce) -> None:
    for seed in (1, 2):
        store.append("runs", make_line(config("fedpurin", seed), 0.7, down=4 * MIB))
    store.append("runs", make_line(config("fedpurin", method={"score": "magnitude"}), 0.72, down=MIB))
    store.append("runs", make_line(config("fedpurin", method={"score": "random"}), 0.5, done=20))
    where = "CIFAR-10, α = 0.5, 20 clients, T = 60"
    verdict = "better on this split, as uploaded and after training"
    assert f"{verdict} ({where}, seed 1)." in said(reproduce, "**The score.**")
    line = said(reproduce, where, "findings-score")
    assert (
        "with 25 % of its download (as uploaded +2.0 points over the rounds until β, +2.0 after it)" in line
    )
    assert "random" not in line  # not run to its end


def test_without_groups_stands_beside_training_alone(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append("runs", make_line(config("fedpurin", method={"beta": 1}), 0.6))
    store.append("runs", make_line(config("separate"), 0.65))
    text = said(reproduce, "**Groups.**")
    assert "FedPURIN -10.00 [-10.00, -10.00] (worse on this split)." in text
    assert "beside training alone: -5.00 [-5.00, -5.00] (worse on this split)." in text


def test_a_client_astray_is_named_with_what_it_costs_the_others(
    store: ResultStore, reproduce: Reproduce
) -> None:
    full = Request(scale="paper").config("cifar-10", 0.1, 1, "fedpurin")
    line = make_line(full, 0.86, down=MIB)
    store.append("runs", line)
    assert "falls from" not in reproduce("findings-full")[1]
    trained = [list(row) for row in line["clients"]["trained"]]
    trained[149][7] = 3000  # round 150
    line["clients"] = line["clients"] | {"trained": trained}
    line["bytes"]["down"] = [MIB] * 150 + [3 * MIB] * 3 + [MIB] * 47
    store.append("runs", line)
    text = said(reproduce, "Seed 1", "findings-full")
    assert text.startswith("- Seed 1, round 150: client 7 falls from 86 to 30 % after training; downloads")
    assert text.endswith("grow to 3.0 times what they were.")


def test_rounds_beyond_sixty_are_told_beside_the_paper(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("pfedsd"), 0.68))
    long = Request(scale="paper").config("cifar-10", 0.5, 1, "pfedsd")
    store.append("runs", make_line(long, 0.71, done=150))
    assert "None of the methods" in reproduce("findings-longer")[1]
    store.append("runs", make_line(long, 0.71))
    text = said(reproduce, "pFedSD's best round", "findings-longer")
    assert text.endswith("71.00 % in round 1 (seed 1); over 60: 68.00 % (seed 1); the paper: 71.10 %.")


def test_the_table_of_traffic_shows_only_what_is_set_so(store: ResultStore, reproduce: Reproduce) -> None:
    for changes in ({}, {"method": {"beta": 1}}, {"method": {"score": "magnitude"}}):
        store.append("runs", make_line(config("fedpurin", **changes), 0.7))
    store.append("runs", make_line(config("separate"), 0.6))
    words = ("table-traffic", "--scale", "paper", "--rounds", "60")
    assert reproduce(*words)[1].count("FedPURIN") == 9  # three settings at three moments
    text = reproduce(*words, "--set", "method.beta=30", "--set", "method.score=gradient")[1]
    assert text.count("FedPURIN") == 3
    assert "Separate" in text  # which has no such settings


# Claims over the seeds that both have


def claim(reproduce: Reproduce, text: str, block: str = "claims") -> list[str]:
    line = next(line for line in reproduce(block)[1].splitlines() if line.startswith(f"| {text}"))
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_training_alone_is_compared_over_the_same_splits(store: ResultStore, reproduce: Reproduce) -> None:
    """FedAvg is below it on the split that both have; other splits may be easy ones."""
    store.append("runs", make_line(config("separate"), 0.7))
    for seed, accuracy in ((1, 0.6), (2, 0.9), (3, 0.9)):
        store.append("runs", make_line(config("fedavg", seed), accuracy))
    assert "best round 0 of 1" in claim(reproduce, "Every method beats")[2]


def test_a_hint_names_the_seeds_that_it_is_from(store: ResultStore, reproduce: Reproduce) -> None:
    for seed in (1, 2, 3):
        store.append("runs", make_line(config("fedpurin", seed), 0.7))
    store.append("runs", make_line(config("fedpurin", method={"score": "delta"}), 0.68))
    assert claim(reproduce, "Exact gradients beat delta")[3] == "T = 60, seed 1"


def test_the_short_table_has_the_verdicts_of_the_long_one(store: ResultStore, reproduce: Reproduce) -> None:
    store.append("runs", make_line(config("fedpurin"), 0.7))
    store.append("runs", make_line(config("fedbn"), 0.68))
    short = claim(reproduce, "FedPURIN above FedBN", "claims-verdicts")
    assert short[1] == "undecided"
    assert short[2] == "CIFAR-10 α=0.5, round 60, 1 seed: +2.00 [+2.00, +2.00], better on this split"
    assert claim(reproduce, "FedPURIN above FedBN")[1].startswith("**undecided**: needs 54 of 54")
