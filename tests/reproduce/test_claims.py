"""A claim is decided only by what it needs; otherwise the reason stands beside "undecided"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce_tools import Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.record import pack_counts
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request, option


def row_of(text: str, claim: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {claim}"))
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def fill_recipe(folder: Path, name: str, accuracy: Any, seeds: tuple[int, ...] = (1, 2, 3)) -> ResultStore:
    """Every cell of a recipe at the paper's length, with `accuracy(config)`."""
    store = ResultStore(folder / "results")
    for cell in RECIPES[name].cells(Request(scale="paper", seeds=seeds)):
        store.append("runs", make_line(cell.config, accuracy(cell.config), noise=0.02))
    return store


def test_two_seeds_of_three_do_not_decide(experiments: Path, reproduce: Reproduce) -> None:
    fill_recipe(experiments, "table-accuracy", lambda c: 0.9 if c.run.method == "fedpurin" else 0.8, (1, 2))
    claim = row_of(reproduce("claims")[1], "FedPURIN above FedBN")
    assert claim[1] == "**undecided**: needs 18 of 54 runs of the paper's length"  # 2 methods x 9 settings


def by_gain(c: Config) -> float:
    """Every method 5 points above Separate at the smallest alpha, 7 and 9 at the next ones."""
    alphas = {"cifar-100": [0.01, 0.1, 0.5]}.get(c.data.dataset, [0.1, 0.5, 1.0])
    return 0.5 if c.run.method == "separate" else 0.55 + 0.02 * alphas.index(c.data.alpha)


def test_gains_over_training_alone_are_judged_method_by_method(
    experiments: Path, reproduce: Reproduce
) -> None:
    fill_recipe(experiments, "table-accuracy", by_gain)
    text = reproduce("claims")[1]
    assert row_of(text, "Every method beats training alone")[1:3] == ["**holds**", "54 of 54"]
    grows = row_of(text, "The gain over training alone grows")
    assert grows[1] == "**holds**"
    assert grows[2] == "18 of 18; the paper's own table: in 17 of 18 (method, data set)"


def test_one_method_below_training_alone_refutes(experiments: Path, reproduce: Reproduce) -> None:
    fill_recipe(
        experiments,
        "table-accuracy",
        lambda c: 0.4 if (c.run.method, c.data.dataset) == ("fedavg", "cifar-100") else by_gain(c),
    )
    assert row_of(reproduce("claims")[1], "Every method beats")[1:3] == ["**fails**", "51 of 54"]


@pytest.mark.parametrize(("step", "verdict"), [(0.01, "**holds**"), (-0.01, "**fails**")])
def test_the_gap_of_batch_norm_has_to_grow_with_alpha(
    experiments: Path, reproduce: Reproduce, step: float, verdict: str
) -> None:
    def accuracy(c: Config) -> float:
        gap = 0.03 + step * [0.1, 0.5, 1.0].index(c.data.alpha)
        return 0.7 - (0.0 if option(c, "exchange_norm") == "no" else gap)

    fill_recipe(experiments, "figure-bn", accuracy)
    assert row_of(reproduce("claims")[1], "Batch norm is better kept at home")[1] == verdict


@pytest.mark.parametrize(("slope", "verdict"), [(0.1, "**holds**"), (-0.1, "**fails**")])
def test_accuracy_has_to_rise_with_tau(
    experiments: Path, reproduce: Reproduce, slope: float, verdict: str
) -> None:
    fill_recipe(experiments, "figure-tau", lambda c: 0.6 + slope * option(c, "tau"))
    assert row_of(reproduce("claims")[1], "Accuracy rises with τ")[1] == verdict


@pytest.mark.parametrize(
    ("gain", "beats", "little"),
    [(0.05, "**holds**", "**fails**"), (-0.05, "**fails**", "**fails**"), (0.002, "**holds**", "**holds**")],
)
def test_score_terms_are_judged_over_all_nine_settings(
    experiments: Path, reproduce: Reproduce, gain: float, beats: str, little: str
) -> None:
    def accuracy(c: Config) -> float:
        return 0.6 + gain * (option(c, "score") == "gradient") + gain * bool(option(c, "hessian"))

    fill_recipe(experiments, "table-terms", accuracy)
    text = reproduce("claims")[1]
    assert row_of(text, "Exact gradients beat delta")[1] == beats
    assert row_of(text, "The quadratic term changes little")[1] == little


# Counts of critical parameters


def counted(seed: int, body: float, head: float, rounds: int = 60) -> dict[str, Any]:
    """Counts of two clients and the server; histograms flat at both ends and peaked in the middle."""
    config = Request(scale="paper", rounds=rounds).config("cifar-10", 0.5, seed, "fedpurin")
    flat, peak = [1] * (rounds + 1), [0] * rounds + [rounds + 1]
    layers = []
    for name, histogram in (("pre_conv", flat), ("stages.0.conv1", peak), ("stages.1.conv1", flat)):
        rows = np.array([[0, 60], [0, 60], [30, 60]])
        layers.append(
            {"name": f"{name}.weight", "shape": [1, 2, 1, 1], "kind": "body", "agreement": body, "never": 0.0,
             "always": 0.0, "histogram": [histogram] * 3, "counts": pack_counts(rows)}
        )  # fmt: skip
    head_layer = {"name": "classifier.weight", "shape": [1, 2], "kind": "head", "agreement": head}
    return {"key": "", "config": config.as_dict(), "rounds": rounds, "client_ids": [0, 1], "never": 0.1,
            "never_by_anybody": 0.0, "layers": [*layers, head_layer]}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "head", "verdict"),
    [
        (0.9, 0.6, "**holds**"),  # 81 and 36 % shared, the bar is 50 %
        (0.9, 0.8, "**fails**"),  # above the classifier, but that agrees as well
        (0.6, 0.3, "**fails**"),  # above the classifier, but it shares only 36 %
    ],
)
def test_agreement_has_a_bar_that_can_fail(
    experiments: Path, reproduce: Reproduce, body: float, head: float, verdict: str
) -> None:
    store = ResultStore(experiments / "results")
    for seed in (1, 2, 3):
        store.append("coverage", counted(seed, body, head))
    assert row_of(reproduce("claims")[1], "Convolutional layers agree")[1] == verdict


def test_counts_of_one_seed_do_not_decide(experiments: Path, reproduce: Reproduce) -> None:
    ResultStore(experiments / "results").append("coverage", counted(1, 0.9, 0.6))
    text = reproduce("claims")[1]
    assert row_of(text, "Convolutional layers agree")[1] == "**undecided**: needs 2 more seeds"
    assert "100 rounds" in row_of(text, "No parameter stays unselected")[1]


def test_flat_ends_and_a_peaked_middle_are_told_apart(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    for seed in (1, 2, 3):
        store.append("coverage", counted(seed, 0.9, 0.6, rounds=200))
    claim = row_of(reproduce("claims")[1], "Selection is uniform")
    assert claim[1] == "**holds**"
    assert "pre_conv 1.00, stages.0.conv1 0.00, stages.1.conv1 1.00" in claim[2]


def test_lock_in_is_checked_against_what_the_global_model_held(
    experiments: Path, reproduce: Reproduce
) -> None:
    ResultStore(experiments / "results").append("coverage", counted(1, 0.9, 0.6))
    claim = row_of(reproduce("claims")[1], "(our explanation) masks lock in")
    # the first weight is never critical, and the global model was not zero there in 30 of 60 rounds
    assert "the global model was not zero in 50 % of them" in claim[2]
    assert claim[1] == "**undecided**: needs check-perturbation"


@pytest.mark.parametrize(
    ("zero", "again", "verdict"),
    [(0.9, 0.05, "**holds**"), (0.0, 0.05, "**fails**"), (0.9, 0.4, "**fails**")],
)
def test_lock_in_needs_scores_of_zero_and_no_way_back(
    experiments: Path, reproduce: Reproduce, zero: float, again: float, verdict: str
) -> None:
    config = Request(scale="paper", rounds=4).config("cifar-10", 0.5, 1, "fedpurin")
    line = {
        "key": "", "config": config.as_dict(), "clients": 2,
        "seconds": {"training": 10.0, "mask": 0.1, "mask_hessian": 0.9},
        "lock_in": {"score_zero": zero, "selected_again": again, "kept_selected_again": 0.5},
    }  # fmt: skip
    (experiments / "results").mkdir()
    (experiments / "results" / "perturbation.jsonl").write_text(json.dumps(line) + "\n")
    text = reproduce("claims")[1]
    assert row_of(text, "(our explanation) masks lock in")[1] == verdict
    assert row_of(text, "Scoring costs little")[1] == "**holds**"  # 1 %
    assert row_of(text, "The quadratic term costs little")[1] == "**fails**"  # 8 % more
