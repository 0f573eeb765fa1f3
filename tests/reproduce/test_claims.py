"""A claim is decided only by what it needs; otherwise the reason stands beside "undecided"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce_tools import MIB, Reproduce, make_line

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
    """Counts of two clients and the server; histograms flat in the outer layers, peaked in the middle one."""
    config = Request(scale="paper", rounds=rounds).config("cifar-10", 0.5, seed, "fedpurin")
    flat, peak = [1] * (rounds + 1), [0] * (rounds + 1)
    peak[rounds // 2] = rounds + 1
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
        store.append("coverage", counted(seed, body, head, rounds=200))
    assert row_of(reproduce("claims")[1], "Convolutional layers agree")[1] == verdict


def test_agreement_over_few_rounds_does_not_decide(experiments: Path, reproduce: Reproduce) -> None:
    """The classifier's grows with the rounds: it may be under the bar only because they are few."""
    store = ResultStore(experiments / "results")
    for seed in (1, 2, 3):
        store.append("coverage", counted(seed, 0.9, 0.6, rounds=60))
    claim = row_of(reproduce("claims")[1], "Convolutional layers agree")
    assert claim[1] == "**undecided**: needs counts over 100 rounds or more"


def test_counts_of_one_seed_do_not_decide(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    store.append("coverage", counted(1, 0.9, 0.6, rounds=200))
    text = reproduce("claims")[1]
    assert row_of(text, "Convolutional layers agree")[1] == "**undecided**: needs 2 more seeds"
    store.append("coverage", counted(2, 0.9, 0.6, rounds=200))
    text = reproduce("claims")[1]
    assert row_of(text, "No parameter stays unselected")[1] == "**undecided**: needs 1 more seed"


def test_counts_of_few_rounds_ask_for_more(experiments: Path, reproduce: Reproduce) -> None:
    ResultStore(experiments / "results").append("coverage", counted(1, 0.9, 0.6))
    claim = row_of(reproduce("claims")[1], "No parameter stays unselected")
    assert claim[1] == "**undecided**: needs 2 more seeds and counts over 100 rounds or more"


def test_flat_ends_and_a_peaked_middle_are_told_apart(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    for seed in (1, 2, 3):
        store.append("coverage", counted(seed, 0.9, 0.6, rounds=200))
    claim = row_of(reproduce("claims")[1], "Selection is uniform")
    assert claim[1] == "**holds**"
    assert "pre_conv 33 %, stages.0.conv1 100 %, stages.1.conv1 33 %" in claim[2]


def test_counts_at_both_ends_of_their_range_are_neither_uniform_nor_peaked(
    experiments: Path, reproduce: Reproduce
) -> None:
    store, rounds = ResultStore(experiments / "results"), 200
    for seed in (1, 2, 3):
        line = counted(seed, 0.9, 0.6, rounds=rounds)
        for layer in line["layers"][:-1]:
            layer["histogram"] = [[1] + [0] * (rounds - 1) + [1]] * 3
        store.append("coverage", line)
    claim = row_of(reproduce("claims")[1], "Selection is uniform")
    assert claim[1] == "**fails**"
    assert "pre_conv 0 %, stages.0.conv1 0 %, stages.1.conv1 0 %" in claim[2]


def test_counts_of_another_setting_are_shown_seed_by_seed(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    store.append("coverage", counted(1, 0.9, 0.6, rounds=200))
    for seed, head in ((1, 0.5), (2, 0.8)):
        store.append("coverage", counted(seed, 0.9, head, rounds=60))
    store.append("coverage", counted(1, 0.9, 0.1, rounds=20))  # too short to be shown
    figure = row_of(reproduce("claims")[1], "Convolutional layers agree")[2]
    judged, others = "convolutions 0.81, classifier 0.36", "0.81, 0.25 / 0.81, 0.64"
    assert figure.endswith(f"{judged}; α=0.5, gradient score, 60 rounds, seeds 1, 2: {others}")


def test_lock_in_is_checked_against_what_the_global_model_held(
    experiments: Path, reproduce: Reproduce
) -> None:
    ResultStore(experiments / "results").append("coverage", counted(1, 0.9, 0.6))
    claim = row_of(reproduce("claims")[1], "(our explanation) masks lock in")
    # the first weight is never critical, and the global model was not zero there in 30 of 60 rounds
    assert "the global model is not zero in 50 % of them" in claim[2]
    assert claim[1] == "**undecided**: needs check-perturbation"


def checked(seed: int, zero: float = 0.0, again: float = 0.5, **seconds: float) -> dict[str, Any]:
    """A line of check-perturbation."""
    config = Request(scale="paper", rounds=4).config("cifar-10", 0.5, seed, "fedpurin")
    return {
        "key": "", "config": config.as_dict(), "clients": 2, "clock": "processor",
        "seconds": {"training": 10.0, **seconds},
        "lock_in": {"score_zero": zero, "selected_again": again, "kept_selected_again": 0.5},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("zero", "again", "verdict"),
    [(0.9, 0.05, "**holds**"), (0.0, 0.05, "**fails**"), (0.9, 0.4, "**fails**")],
)
def test_lock_in_needs_scores_of_zero_and_no_way_back(
    experiments: Path, reproduce: Reproduce, zero: float, again: float, verdict: str
) -> None:
    store = ResultStore(experiments / "results")
    for seed in (1, 2, 3):
        store.append("perturbation", checked(seed, zero, again))
    assert row_of(reproduce("claims")[1], "(our explanation) masks lock in")[1] == verdict


@pytest.mark.parametrize(
    ("zero", "verdict"), [(0.9, "**undecided**: needs 2 more seeds"), (0.0, "**fails**")]
)
def test_one_seed_refutes_lock_in_but_does_not_establish_it(
    experiments: Path, reproduce: Reproduce, zero: float, verdict: str
) -> None:
    ResultStore(experiments / "results").append("perturbation", checked(1, zero, 0.05))
    assert row_of(reproduce("claims")[1], "(our explanation) masks lock in")[1] == verdict


def test_costs_have_a_bar_and_need_the_processors_clock(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    line = checked(1, mask=0.1, mask_hessian=0.9)
    store.append("perturbation", {name: value for name, value in line.items() if name != "clock"})
    # other work on the machine stretches a long training, not the best of five short masks
    needs = "**undecided**: needs check-perturbation by the processor's clock"
    assert row_of(reproduce("claims")[1], "Scoring costs little")[1] == needs
    store.append("perturbation", line)
    text = reproduce("claims")[1]
    assert row_of(text, "Scoring costs little")[1] == "**holds**"  # 1 %
    assert row_of(text, "The quadratic term costs little")[1] == "**fails**"  # 8 % more
    assert row_of(text, "The quadratic term costs little")[2] == (
        "8.0 % of a round's local training (bar: 5 %)"
    )


def test_a_cost_that_the_clock_cannot_tell_is_not_called_nothing(
    experiments: Path, reproduce: Reproduce
) -> None:
    ResultStore(experiments / "results").append("perturbation", checked(1, mask=0.1, mask_hessian=0.09))
    assert "under 0.1 %" in row_of(reproduce("claims")[1], "The quadratic term costs little")[2]


def test_a_small_model_does_not_decide_what_scoring_costs(experiments: Path, reproduce: Reproduce) -> None:
    line = checked(1, mask=0.1)
    line["config"]["model"]["name"] = "cnn"
    ResultStore(experiments / "results").append("perturbation", line)
    assert "on a model of the paper" in row_of(reproduce("claims")[1], "Scoring costs little")[1]


def test_a_few_rounds_astray_do_not_decide_about_the_support(experiments: Path, reproduce: Reproduce) -> None:
    config = Request(scale="paper", rounds=200).config("cifar-10", 0.5, 1, "fedpurin")
    line = make_line(config)
    line["bytes"]["outside"][-7:] = [700] * 7  # of 800: more than before beta
    ResultStore(experiments / "results").append("runs", line)
    said = row_of(reproduce("claims")[1], "The global model's support moves")[2]
    assert "50.0 % of d in the 20 rounds up to β = 100, 12.5 % in the 20 up to 200" in said


def test_training_alone_is_compared_by_the_best_round_and_at_the_end(
    experiments: Path, reproduce: Reproduce
) -> None:
    store, request = ResultStore(experiments / "results"), Request(scale="paper", rounds=60)
    store.append("runs", make_line(request.config("cifar-10", 0.5, 1, "separate"), 0.6))
    falling = make_line(request.config("cifar-10", 0.5, 1, "fedavg"), 0.7)
    for moment in falling["clients"]:
        falling["clients"][moment] = [[7000] * 20] * 30 + [[5000] * 20] * 30
    store.append("runs", falling)
    claim = row_of(reproduce("claims")[1], "Every method beats training alone")
    assert claim[2] == "CIFAR-10 α=0.5, T = 60: best round 1 of 1, last ten rounds 0 of 1"


# What arrives one after the other


def test_another_order_of_samples_is_no_further_seed(experiments: Path, reproduce: Reproduce) -> None:
    store, request = ResultStore(experiments / "results"), Request(scale="paper", rounds=60)
    for method, accuracy in (("fedpurin", 0.7), ("fedbn", 0.6)):
        store.append("runs", make_line(request.config("cifar-10", 0.5, 1, method), accuracy, noise=0.02))
    before = row_of(reproduce("claims")[1], "FedPURIN above FedBN")
    assert "round 60, 1 seed: +10.00" in before[2]
    again = request.config("cifar-10", 0.5, 1, "fedpurin").updated({"run": {"order_seed": 2}})
    store.append("runs", make_line(again, 0.8, noise=0.02))
    assert row_of(reproduce("claims")[1], "FedPURIN above FedBN") == before


def test_savings_are_shown_from_the_longest_runs(experiments: Path, reproduce: Reproduce) -> None:
    """FedAvg's bytes depend on no training, so those of its short run stand for the long one."""
    store, short = ResultStore(experiments / "results"), RECIPES["table-communication"]
    for method, up in (("fedpurin", 2 * MIB), ("fedavg", 4 * MIB)):
        config = short.config(Request(scale="quick"), short.row(method), ("cifar-10", 0.1), 1)
        store.append("runs", make_line(config, up=up, down=up))
    assert "CIFAR-10: 50.0 / " in row_of(reproduce("claims")[1], "Uplink / downlink reduced by at least")[2]
    long = Request(scale="paper").config("cifar-10", 0.1, 1, "fedpurin")
    store.append("runs", make_line(long, up=MIB, down=MIB))
    claim = row_of(reproduce("claims")[1], "Uplink / downlink reduced by at least")
    assert claim[1] == "**undecided**: needs 5 of 6 runs of the paper's length"  # 2 data sets x 3 seeds
    assert "CIFAR-10: 75.0 / " in claim[2]
    assert claim[3] == "T = 200, 1 seed"


def test_the_support_is_judged_by_three_long_runs(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")

    def judged_with(seed: int, rounds: int) -> list[str]:
        config = Request(scale="paper", rounds=rounds).config("cifar-10", 0.5, seed, "fedpurin")
        store.append("runs", make_line(config))
        return row_of(reproduce("claims")[1], "The global model's support moves")

    assert judged_with(1, 60)[1] == "**undecided**: needs 2 more seeds and runs of 100 rounds or more"
    judged_with(2, 60)
    claim = judged_with(3, 60)
    assert claim[1] == "**undecided**: needs runs of 100 rounds or more"
    # 400 and 100 of 800 exchanged parameters, per make_line
    said = "50.0, 50.0, 50.0 % of d in the 20 rounds up to β = 30, 12.5, 12.5, 12.5 % in the 20 up to 60"
    assert f"{said} (seed 1, 2, 3)" in claim[2]
    assert judged_with(1, 200)[1] == "**undecided**: needs 2 more seeds"
    judged_with(2, 200)
    assert judged_with(3, 200)[1] == "**holds**"
