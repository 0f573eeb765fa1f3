"""The quickstart's data: every setting, and each beside another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reproduce_tools import Reproduce, make_line

from fedpurin.config import Config
from fedpurin.reproduce.result_store import ResultStore

MINI = ("--scale", "mini")


def add(
    experiments: Path, method: str, accuracy: float, *, seed: int = 1, up: int = 2**20, **own: Any
) -> None:
    changes = {"run": {"method": method, "seed": seed}, "method": own}
    config = Config.preset("quickstart").updated(changes)
    ResultStore(experiments / "results").append("runs", make_line(config, accuracy, up=up, down=up))


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row, by its first two."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| Fed")]
    return {f"{cells[0]} beside {cells[1]}": cells[2:] for cells in lines}


def test_the_bundled_table_has_a_row_per_setting_and_a_column_per_seed(
    experiments: Path, reproduce: Reproduce
) -> None:
    """Runs on other data, of other training or unfinished ones are left out; no mean of some seeds only."""
    store, preset = ResultStore(experiments / "results"), Config.preset("quickstart")
    dense = preset.updated({"run": {"method": "fedbn"}})
    changed = preset.updated({"method": {"score": "curvature"}})
    for seed, accuracy in ((1, 0.70), (2, 0.72), (3, 0.77)):
        store.append("runs", make_line(dense.updated({"run": {"seed": seed}}), accuracy))
    store.append("runs", make_line(changed.updated({"run": {"seed": 2}}), 0.8))
    many = {"up": 1.0, "down": 1.0, "own": 0.5, "mix": 0.0}
    store.append("runs", make_line(preset.updated({"run": {"method": "fedfrugal"}, "method": many}), 0.6))
    store.append("runs", make_line(preset.updated({"run": {"clients": 5}})))
    store.append("runs", make_line(preset.updated({"train": {"lr": 0.2}})))
    store.append("runs", make_line(preset, done=3))
    _, text = reproduce("table-bundled", "--scale", "mini")
    rows = [line for line in text.splitlines() if line.startswith("| Fed")]
    # 15 rounds of 1 MiB up and 2 down
    assert rows == [
        "| FedBN | 70.0 | 72.0 | 77.0 | 73.0 | 73.0 | 45.000 |",
        "| FedPURIN (score curvature) | - | 80.0 | - | - | - | 45.000 |",
        "| FedFrugal (down 1.0, mix 0.0, own 0.5, up 1.0) | 60.0 | - | - | - | - | 45.000 |",
    ]


def test_a_setting_stands_beside_the_nearest_one_of_its_method(
    experiments: Path, reproduce: Reproduce
) -> None:
    """The one that lacks some of its changes, and as few as possible; the usual one stands beside none."""
    add(experiments, "fedbn", 0.7)
    add(experiments, "fedfrugal", 0.7)
    add(experiments, "fedfrugal", 0.72, up=2**18, mix=0.5)
    add(experiments, "fedfrugal", 0.75, up=2**19, mix=0.5, own=0.5)
    add(experiments, "fedfrugal", 0.69, mix=0.25, own=0.5)  # no other has this mix
    found = rows(reproduce("table-bundled-switches", *MINI)[1])
    assert list(found) == [
        "FedFrugal (mix 0.25, own 0.5) beside FedFrugal",
        "FedFrugal (mix 0.5) beside FedFrugal",
        "FedFrugal (mix 0.5, own 0.5) beside FedFrugal (mix 0.5)",
    ]
    by_seed, trained, *_, mib, share = found["FedFrugal (mix 0.5, own 0.5) beside FedFrugal (mix 0.5)"]
    assert by_seed == "+3.0 / - / -"
    assert trained.endswith("better on this split")
    assert (mib, share) == ("15.000", "2.000")  # 15 rounds of half a MiB both ways, beside a quarter


def test_differences_are_of_the_seeds_that_both_have(experiments: Path, reproduce: Reproduce) -> None:
    for seed, accuracy in ((1, 0.7), (2, 0.8), (3, 0.6)):
        add(experiments, "fedpurin", accuracy, seed=seed)
    for seed, accuracy in ((2, 0.82), (3, 0.64)):
        add(experiments, "fedpurin", accuracy, seed=seed, beta=1)
    by_seed, trained, *_ = rows(reproduce("table-bundled-switches", *MINI)[1])[
        "FedPURIN (beta 1) beside FedPURIN"
    ]
    assert by_seed == "- / +2.0 / +4.0"
    assert trained == "+3.00 [+2.00, +4.00] better"


def test_fedfrugal_stands_beside_each_ones_usual_and_best_setting(
    experiments: Path, reproduce: Reproduce
) -> None:
    add(experiments, "fedfrugal", 0.8, up=2**18)
    add(experiments, "fedfrugal", 0.9, mix=0.5)
    add(experiments, "separate", 0.7, up=0)
    add(experiments, "fedpurin", 0.7)
    add(experiments, "fedpurin", 0.75, beta=1)
    add(experiments, "fedpurin", 0.72, tau=0.4)
    text = reproduce("table-bundled-rivals", *MINI)[1]
    assert [(key, cells[0], cells[-1]) for key, cells in rows(text).items()] == [
        ("FedFrugal beside Separate", "+10.0 / - / -", "-"),  # which sends nothing
        ("FedFrugal beside FedPURIN", "+10.0 / - / -", "0.250"),
        ("FedFrugal beside FedPURIN (beta 1)", "+5.0 / - / -", "0.250"),
    ]
