"""Who holds what: the samples of a data set divided among clients.

    dirichlet           the paper's: each client's class shares are Dirichlet draws; clients may share samples
    dirichlet-disjoint  the same shares, but no two clients hold the same sample
    classes             every client holds the same number of classes, in equal parts
    iid                 every client holds a random part of the whole; disjoint

A split depends on the labels, the arguments and the seed only. Every kind takes a
fixed number of passes over clients and classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpurin.data.split import Split
from fedpurin.errors import DataError

__all__ = ["KINDS", "Split", "class_counts", "make_split"]

Samples = int | Sequence[int]
MAX_SEED = 2**32 - 1  # what numpy's RandomState accepts


@dataclass(frozen=True)
class _SplitRequest:
    """One make_split, validated. Labels are int64 [n]; wanted samples are one number per client."""

    train_y: np.ndarray
    test_y: np.ndarray
    train_wanted: list[int]
    test_wanted: list[int]
    seed: int
    num_classes: int
    alpha: float | None
    classes_per_client: int | None

    def random(self) -> np.random.RandomState:
        return np.random.RandomState(self.seed)


def make_split(
    kind: str,
    train_y: Any,
    test_y: Any,
    *,
    clients: int,
    seed: int,
    train_samples: Samples,
    test_samples: Samples,
    num_classes: int,
    alpha: float | None = None,
    classes_per_client: int | None = None,
) -> Split:
    """Divides the samples with these labels among clients. `*_samples` is one number, or one per client."""
    if kind not in _MAKERS:
        raise DataError(f"unknown kind of split {kind!r}; accepted: {', '.join(KINDS)}")
    if clients < 1:
        raise DataError(f"clients = {clients}; there must be at least one")
    if not 0 <= seed <= MAX_SEED:
        raise DataError(f"seed = {seed}; it must be from 0 to {MAX_SEED}")
    if num_classes < 2:
        raise DataError(
            f"a data set with {'one class' if num_classes == 1 else 'no classes'}; there must be two"
        )
    request = _SplitRequest(
        np.asarray(train_y, np.int64),
        np.asarray(test_y, np.int64),
        _per_client(train_samples, clients, "train"),
        _per_client(test_samples, clients, "test"),
        seed,
        num_classes,
        alpha,
        classes_per_client,
    )
    for y, wanted, what in (
        (request.train_y, request.train_wanted, "train"),
        (request.test_y, request.test_wanted, "test"),
    ):
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
            raise DataError(
                f"{what} labels from {y.min()} to {y.max()}, but {num_classes} classes numbered from 0"
            )
        if max(wanted) > len(y):
            raise DataError(
                f"{max(wanted)} {what} samples for one client, but the data set has {len(y)}; ask for fewer"
            )
    train, test = _MAKERS[kind](request)
    return Split(train, test)


def class_counts(y: Any, indices: np.ndarray, num_classes: int) -> np.ndarray:
    """How many of these samples each class has: int64 [num_classes]."""
    return np.bincount(np.asarray(y, np.int64)[indices], minlength=num_classes)


def _per_client(samples: Samples, clients: int, what: str) -> list[int]:
    wanted = [int(samples)] * clients if isinstance(samples, (int, np.integer)) else [int(s) for s in samples]
    if len(wanted) != clients:
        raise DataError(f"{len(wanted)} numbers of {what} samples for {clients} clients; give one per client")
    for client, count in enumerate(wanted):
        if count < 1:
            raise DataError(
                f"client {client} would have {count} {what} samples; every client needs at least one"
            )
    return wanted


def _by_class(y: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The positions of each class, in the order of the data set."""
    return [np.flatnonzero(y == c) for c in range(num_classes)]


def _shares(random: np.random.RandomState, request: _SplitRequest) -> np.ndarray:
    """q [clients, classes], rows sum to 1. Drawn first, so both splits of one seed have the same q."""
    alpha = request.alpha
    if alpha is None or not (0 < alpha < np.inf):
        raise DataError(f"alpha = {alpha}; a Dirichlet split needs a number above 0")
    q = random.dirichlet([alpha] * request.num_classes, len(request.train_wanted))
    if not np.isfinite(q).all():
        raise DataError(
            f"alpha = {alpha} is too small: shares of classes are no longer numbers; try 0.01 or more"
        )
    return q


def _counts(share: np.ndarray, samples: int) -> list[int]:
    """Rounded shares in class order, never more than what is left; the last class takes the rest."""
    counts: list[int] = []
    for q in share[:-1]:
        counts.append(min(int(samples * q + 0.5), samples - sum(counts)))
    return [*counts, samples - sum(counts)]


# --- the paper's split --------------------------------------------------------------------------------------


def _dirichlet(request: _SplitRequest) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return (
        _dirichlet_one(request, request.train_y, request.train_wanted, "train"),
        _dirichlet_one(request, request.test_y, request.test_wanted, "test"),
    )


def _dirichlet_one(request: _SplitRequest, y: np.ndarray, wanted: list[int], what: str) -> list[np.ndarray]:
    random = request.random()
    q = _shares(random, request)
    pools = _by_class(y, request.num_classes)
    clients = []
    for share, samples in zip(q, wanted, strict=True):
        parts = []
        for c, count in enumerate(_counts(share, samples)):
            if count and not len(pools[c]):
                raise DataError(
                    f"class {c} has no {what} samples, but {count} are wanted; use another kind of split"
                )
            # drawn even for 0 samples: choice moves the random state
            parts.append(random.choice(pools[c], count, replace=count > len(pools[c])))
        clients.append(np.concatenate(parts).astype(np.int64))
    return clients


# --- splits in which clients share no samples ----------------------------------------------------------


def _dirichlet_disjoint(request: _SplitRequest) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Test shares follow what a client really got to train on, which differs from q where a class ran out."""
    random = request.random()
    train = _deal(random, request.train_y, _shares(random, request), request.train_wanted, "train")
    got = np.stack([class_counts(request.train_y, indices, request.num_classes) for indices in train])
    test = _deal(random, request.test_y, got / got.sum(axis=1, keepdims=True), request.test_wanted, "test")
    return train, test


def _deal(
    random: np.random.RandomState, y: np.ndarray, q: np.ndarray, wanted: list[int], what: str
) -> list[np.ndarray]:
    """Each client's share of each class as far as it lasts; then gaps are filled, largest shares first.

    Two passes, so that nobody's gap is filled with what a later client has a claim to.
    """
    _refuse_more_than_exist(wanted, len(y), what)
    pools = [random.permutation(pool) for pool in _by_class(y, q.shape[1])]
    used = [0] * len(pools)

    def take(c: int, count: int) -> np.ndarray:
        start = used[c]
        used[c] = min(start + count, len(pools[c]))
        return pools[c][start : used[c]]

    clients = [
        [take(c, count) for c, count in enumerate(_counts(share, samples))]
        for share, samples in zip(q, wanted, strict=True)
    ]
    for parts, share, samples in zip(clients, q, wanted, strict=True):
        for c in np.argsort(-share, kind="stable"):
            parts.append(take(int(c), samples - sum(map(len, parts))))
    return [np.concatenate(parts).astype(np.int64) for parts in clients]


def _iid(request: _SplitRequest) -> tuple[list[np.ndarray], list[np.ndarray]]:
    def one(y: np.ndarray, wanted: list[int], what: str) -> list[np.ndarray]:
        _refuse_more_than_exist(wanted, len(y), what)
        order = request.random().permutation(len(y)).astype(np.int64)
        return np.split(order[: sum(wanted)], np.cumsum(wanted)[:-1])

    return one(request.train_y, request.train_wanted, "train"), one(
        request.test_y, request.test_wanted, "test"
    )


def _refuse_more_than_exist(wanted: list[int], available: int, what: str) -> None:
    if sum(wanted) > available:
        raise DataError(
            f"{len(wanted)} clients want {sum(wanted)} {what} samples without sharing, but there are "
            f"{available}; take fewer clients or samples, or the kind dirichlet, which lets clients share"
        )


# --- k classes per client --------------------------------------------------------------------------------


def _classes(request: _SplitRequest) -> tuple[list[np.ndarray], list[np.ndarray]]:
    k = request.classes_per_client
    if k is None or not 1 <= k <= request.num_classes:
        raise DataError(f"classes_per_client = {k}; it must be from 1 to {request.num_classes}")
    random = request.random()
    chosen = _choose_classes(random, len(request.train_wanted), k, request.num_classes)
    return (
        _equal_parts(random, request.train_y, chosen, request.train_wanted, request.num_classes, "train"),
        _equal_parts(random, request.test_y, chosen, request.test_wanted, request.num_classes, "test"),
    )


def _choose_classes(
    random: np.random.RandomState, clients: int, k: int, num_classes: int
) -> list[np.ndarray]:
    """Each client takes the k classes taken least often so far, ties by lot: none is left out for long."""
    taken = np.zeros(num_classes, np.int64)
    chosen = []
    for _ in range(clients):
        lot = random.permutation(num_classes)
        mine = np.sort(lot[np.argsort(taken[lot], kind="stable")][:k])
        taken[mine] += 1
        chosen.append(mine)
    return chosen


def _equal_parts(
    random: np.random.RandomState,
    y: np.ndarray,
    chosen: list[np.ndarray],
    wanted: list[int],
    num_classes: int,
    what: str,
) -> list[np.ndarray]:
    """Clients take consecutive pieces of each shuffled class, starting again at its end.

    So clients share samples only when a class has fewer than all of them want, and then as evenly as can be.
    """
    pools = [random.permutation(pool) for pool in _by_class(y, num_classes)]
    start = [0] * num_classes
    clients = []
    for classes, samples in zip(chosen, wanted, strict=True):
        parts = []
        for position, c in enumerate(classes):
            count = samples // len(classes) + (position < samples % len(classes))
            if count > len(pools[c]):
                raise DataError(
                    f"{count} {what} samples of class {c} for one client, but there are {len(pools[c])}; "
                    "take fewer samples or more classes per client"
                )
            parts.append(pools[c][(start[c] + np.arange(count)) % max(len(pools[c]), 1)])
            start[c] += count
        clients.append(np.concatenate(parts).astype(np.int64))
    return clients


_MAKERS: dict[str, Callable[[_SplitRequest], tuple[list[np.ndarray], list[np.ndarray]]]] = {
    "dirichlet": _dirichlet,
    "dirichlet-disjoint": _dirichlet_disjoint,
    "classes": _classes,
    "iid": _iid,
}
KINDS = tuple(_MAKERS)
