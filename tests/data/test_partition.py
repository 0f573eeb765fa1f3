"""Who holds what: sizes, disjointness, determinism, and the paper's split bit for bit."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpurin.data import KINDS, NAMES, class_counts, load, make_split
from fedpurin.errors import DataError

PAPER = json.loads((Path(__file__).parent / "partitions.json").read_text())["splits"]
DISJOINT = ("dirichlet-disjoint", "iid")


def split(kind="dirichlet", train_y=None, test_y=None, **changes):
    """A split of 12 train and 6 test samples of three classes, unless told otherwise."""
    train_y = np.array([0, 1, 2] * 4) if train_y is None else train_y
    test_y = np.array([2, 1, 0] * 2) if test_y is None else test_y
    arguments = {
        "clients": 2,
        "seed": 2,
        "alpha": 0.5,
        "classes_per_client": 2,
        "train_samples": 5,
        "test_samples": 3,
        "num_classes": 3,
    }
    return make_split(kind, train_y, test_y, **{**arguments, **changes})


def lists(arrays):
    return [a.tolist() for a in arrays]


# --- the paper's split ------------------------------------------------------------------------------------


def test_the_papers_split_by_hand():
    # RandomState(2).dirichlet([.5] * 3, 2) = [[.5825, .3375, .0800], [.1741, .7908, .0351]].
    # 5 train samples: int(2.91 + .5) = 3 and int(1.69 + .5) = 2, the last class gets the remaining 0; then
    # int(.87 + .5) = 1 and int(3.95 + .5) = 4. Classes 0, 1 are at 0, 3, 6, 9 and 1, 4, 7, 10.
    # 3 test samples: 2 + 1 + 0 and 1 + 2 + 0. Classes 0, 1 are at 2, 5 and 1, 4.
    found = split(seed=2)
    assert lists(found.train) == [[3, 0, 6, 10, 1], [3, 1, 7, 4, 10]]
    assert lists(found.test) == [[2, 5, 1], [5, 4, 1]]


def test_the_papers_split_repeats_samples_only_when_a_class_has_too_few():
    # RandomState(1) gives client 0 the share .8898 of class 0: int(2.67 + .5) = 3 of the two at 2, 5
    found = split(seed=1)
    assert lists(found.test)[0] == [5, 2, 2]
    assert len(set(lists(found.train)[0])) == 5


def test_train_and_test_have_the_same_shares():
    y = np.arange(4000) % 4
    found = split(train_y=y, test_y=y, train_samples=800, test_samples=400, num_classes=4, clients=5)
    for train, test in zip(found.train, found.test, strict=True):
        assert np.abs(class_counts(y, train, 4) / 800 - class_counts(y, test, 4) / 400).max() < 0.01


@cache
def labels(dataset: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    whole = load(dataset, folder)
    return whole.train_y.numpy(), whole.test_y.numpy()


@pytest.mark.parametrize("case", PAPER, ids=lambda c: f"{c['dataset']}-{c['alpha']}-{c['seed']}")
def test_the_papers_27_splits_bit_for_bit(case, official):
    def digest(arrays):
        return hashlib.sha256(b"".join(a.astype("<i8").tobytes() for a in arrays)).hexdigest()

    train_y, test_y = labels(case["dataset"], official(case["dataset"]))
    classes = int(train_y.max()) + 1
    found = make_split(
        "dirichlet",
        train_y,
        test_y,
        clients=20,
        seed=case["seed"],
        alpha=case["alpha"],
        train_samples=500,
        test_samples=100,
        num_classes=classes,
    )
    assert digest(found.train) == case["train_sha256"]
    assert digest(found.test) == case["test_sha256"]
    if case["first_client_counts"] is not None:
        assert class_counts(train_y, found.train[0], classes).tolist() == case["first_client_counts"]


def test_all_27_splits_of_the_paper_are_in_the_table():
    assert len({(c["dataset"], c["alpha"], c["seed"]) for c in PAPER}) == 27
    assert {c["dataset"] for c in PAPER} == set(NAMES) - {"fashion-mnist-mini"}


# --- what holds for every kind ----------------------------------------------------------------------------


@st.composite
def requests(draw):
    """Arguments of a split that every kind can satisfy: classes and clients of unequal sizes."""
    num_classes = draw(st.integers(2, 5))
    clients = draw(st.integers(1, 5))
    samples = draw(st.lists(st.integers(1, 12), min_size=clients, max_size=clients))
    sizes = draw(st.lists(st.integers(12, 40), min_size=num_classes, max_size=num_classes))
    y = np.random.RandomState(draw(st.integers(0, 99))).permutation(np.repeat(np.arange(num_classes), sizes))
    return {
        "train_y": y,
        "test_y": y[::-1].copy(),
        "clients": clients,
        "train_samples": [min(s, len(y) // clients) for s in samples],
        "test_samples": draw(st.integers(1, len(y) // clients if len(y) // clients < 12 else 12)),
        "num_classes": num_classes,
        "classes_per_client": draw(st.integers(1, num_classes)),
        "alpha": draw(st.sampled_from([0.05, 0.5, 5.0])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(request=requests())
def test_every_client_gets_exactly_what_was_asked_for(kind, request):
    found = split(kind, **request)
    assert [len(a) for a in found.train] == request["train_samples"]
    assert [len(a) for a in found.test] == [request["test_samples"]] * request["clients"]
    for side, y in ((found.train, request["train_y"]), (found.test, request["test_y"])):
        for indices in side:
            assert indices.dtype == np.int64
            assert 0 <= indices.min() <= indices.max() < len(y)


@pytest.mark.parametrize("kind", DISJOINT)
@settings(max_examples=60, deadline=None)
@given(request=requests())
def test_clients_of_a_disjoint_split_share_nothing(kind, request):
    found = split(kind, **request)
    for side in (found.train, found.test):
        everything = np.concatenate(side)
        assert len(np.unique(everything)) == len(everything)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(request=requests())
def test_the_same_seed_gives_the_same_split(kind, request):
    assert split(kind, **request).fingerprint == split(kind, **request).fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ_and_leave_the_global_random_state_alone(kind):
    y = np.arange(300) % 3
    state = np.random.get_state()[1].tolist()
    made = [split(kind, y, y, seed=s, train_samples=50, test_samples=50) for s in range(5)]
    assert len({m.fingerprint for m in made}) == 5
    assert np.random.get_state()[1].tolist() == state


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_as_good_as_arrays(kind):
    y = np.arange(30) % 3
    assert split(kind, torch.from_numpy(y), torch.from_numpy(y)).fingerprint == split(kind, y, y).fingerprint


# --- disjoint ---------------------------------------------------------------------------------------------


def test_the_disjoint_variant_has_the_papers_counts_while_classes_last():
    y = np.arange(9000) % 3
    request = {"train_y": y, "test_y": y, "train_samples": 100, "test_samples": 100, "clients": 6}
    paper, disjoint = split("dirichlet", **request), split("dirichlet-disjoint", **request)
    for side in ("train", "test"):
        assert [class_counts(y, a, 3).tolist() for a in getattr(paper, side)] == [
            class_counts(y, a, 3).tolist() for a in getattr(disjoint, side)
        ]


@pytest.mark.parametrize("kind", DISJOINT)
@pytest.mark.parametrize("seed", range(5))
def test_a_disjoint_split_can_give_away_every_sample(kind, seed):
    found = split(kind, clients=3, train_samples=4, test_samples=2, seed=seed, alpha=0.1)
    assert sorted(np.concatenate(found.train)) == list(range(12))
    assert sorted(np.concatenate(found.test)) == list(range(6))


def test_a_gap_is_filled_with_the_largest_other_share_first():
    # seed 2 wants 3 + 2 + 0 samples for client 0 (see above), class 0 has one: the gap goes to class 1
    found = split("dirichlet-disjoint", np.array([0, 1, 1, 1, 1, 2, 2, 2, 2]), clients=1, seed=2)
    train_counts = class_counts([0, 1, 1, 1, 1, 2, 2, 2, 2], found.train[0], 3)
    assert train_counts.tolist() == [1, 4, 0]
    # test samples follow what there is to train on, 1/5 and 4/5 of 3: int(1.1) = 1 and int(2.9) = 2
    assert class_counts([2, 1, 0, 2, 1, 0], found.test[0], 3).tolist() == [1, 2, 0]


def test_the_largest_share_goes_first_whatever_its_number():
    # RandomState(4).dirichlet([.5] * 3, 1) = [[.4411, .4868, .0721]]: 2 + 2 + 1 of 5, and class 2 has none
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    found = split("dirichlet-disjoint", y, clients=1, seed=4)
    assert class_counts(y, found.train[0], 3).tolist() == [2, 3, 0]


def test_filling_a_gap_takes_nothing_that_another_client_has_a_claim_to():
    # client 0 wants 3 + 2 + 0, client 1 wants 1 + 4 + 0; class 0 has 2 samples, class 1 just the 6 wanted
    y = np.array([0] * 2 + [1] * 6 + [2] * 4)
    found = split("dirichlet-disjoint", y, seed=2)
    assert [class_counts(y, a, 3).tolist() for a in found.train] == [[2, 2, 1], [0, 4, 1]]


# --- k classes per client ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(request=requests())
def test_a_client_holds_at_most_k_classes_in_equal_parts_the_same_in_both_splits(request):
    found = split("classes", **request)
    k = request["classes_per_client"]
    for train, test, wanted in zip(found.train, found.test, request["train_samples"], strict=True):
        counts = class_counts(request["train_y"], train, request["num_classes"])
        test_counts = class_counts(request["test_y"], test, request["num_classes"])
        held = counts[counts > 0]
        assert len(held) == min(k, wanted)
        assert held.max() - held.min() <= 1
        if wanted >= k and request["test_samples"] >= k:
            assert (counts > 0).tolist() == (test_counts > 0).tolist()
        assert len(np.unique(train)) == len(train)


def test_classes_are_dealt_evenly():
    y = np.arange(1000) % 10
    found = split("classes", y, y, clients=15, train_samples=10, test_samples=2, num_classes=10)
    holders = np.stack([class_counts(y, a, 10) > 0 for a in found.train]).sum(axis=0)
    assert holders.tolist() == [3] * 10  # 15 clients of 2 classes are 30 places for 10 classes


def test_classes_are_shared_only_when_a_class_has_too_few():
    y = np.arange(40) % 2
    enough = split(
        "classes", y, y, clients=4, classes_per_client=1, train_samples=10, test_samples=1, num_classes=2
    )
    assert len(np.unique(np.concatenate(enough.train))) == 40
    tight = split(
        "classes", y, y, clients=4, classes_per_client=1, train_samples=15, test_samples=1, num_classes=2
    )
    used = np.bincount(np.concatenate(tight.train), minlength=40)
    assert (used.min(), used.max()) == (
        1,
        2,
    )  # 30 wanted of each class of 20: nobody left out, nobody three times


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"kind": "zipf"},
            "unknown kind of split 'zipf'; accepted: dirichlet, dirichlet-disjoint, classes, iid",
        ),
        ({"clients": 0}, "clients = 0"),
        ({"alpha": 0.0}, "alpha = 0.0"),
        ({"alpha": -1.0}, "alpha = -1.0"),
        ({"alpha": float("nan")}, "alpha = nan"),
        ({"alpha": float("inf")}, "alpha = inf"),
        ({"alpha": None}, "alpha = None"),
        ({"alpha": 1e-5, "clients": 20}, "alpha = 1e-05 is too small"),
        (
            {
                "alpha": 1e-5,
                "clients": 4,
                "kind": "dirichlet-disjoint",
                "train_samples": 1,
                "test_samples": 1,
            },
            "too small",
        ),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**32}, "seed = 4294967296"),
        ({"num_classes": 1}, "a data set with one class"),
        ({"num_classes": 2}, "train labels from 0 to 2, but 2 classes"),
        ({"train_samples": 13}, "13 train samples for one client, but the data set has 12"),
        ({"test_samples": 7}, "7 test samples for one client, but the data set has 6"),
        ({"train_samples": 0}, "client 0 would have 0 train samples"),
        ({"train_samples": [5, 0]}, "client 1 would have 0 train samples"),
        ({"test_samples": [3, -1]}, "client 1 would have -1 test samples"),
        ({"train_samples": [5]}, "1 numbers of train samples for 2 clients"),
        (
            {"kind": "iid", "train_samples": 7},
            "2 clients want 14 train samples without sharing, but there are 12",
        ),
        ({"kind": "dirichlet-disjoint", "test_samples": 4}, "2 clients want 8 test samples without sharing"),
        ({"kind": "classes", "classes_per_client": 0}, "classes_per_client = 0; it must be from 1 to 3"),
        ({"kind": "classes", "classes_per_client": 4}, "classes_per_client = 4"),
        ({"kind": "classes", "classes_per_client": None}, "classes_per_client = None"),
        (
            {"kind": "classes", "classes_per_client": 1},
            "5 train samples of class . for one client, but there are 4",
        ),
        ({"train_y": np.zeros(12, int)}, "class 1 has no train samples, but 2 are wanted"),
        ({"train_y": np.zeros(0, int)}, "but the data set has 0"),
    ],
)
def test_what_cannot_be_is_refused(changes, expected):
    with pytest.raises(DataError, match=expected):
        split(**changes)
