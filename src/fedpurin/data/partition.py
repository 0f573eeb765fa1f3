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

Samples = int | Sequence[int]
PerClient = list[np.ndarray]
MAX_SEED = 2**32 - 1  # what numpy's RandomState accepts


@dataclass(frozen=True)
class _Side:
    """The samples for training, or those for testing, and how many of them each client wants."""

    what: str  # "train" or "test"
    y: np.ndarray  # int64 [n]
    wanted: list[int]
    num_classes: int

    def by_class(self) -> list[np.ndarray]:
        """The positions of each class, in the order of the data set."""
        return [np.flatnonzero(self.y == c) for c in range(self.num_classes)]

    def refuse_more_than_exist(self) -> None:
        if sum(self.wanted) > len(self.y):
            raise DataError(
                f"{len(self.wanted)} clients want {sum(self.wanted)} {self.what} samples without sharing, "
                f"but there are {len(self.y)}; take fewer clients or samples, or the kind dirichlet, which "
                "lets clients share"
            )


@dataclass(frozen=True)
class _Request:
    """One make_split, validated."""

    train: _Side
    test: _Side
    seed: int
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
    train = _side("train", train_y, train_samples, clients, num_classes)
    test = _side("test", test_y, test_samples, clients, num_classes)
    return Split(*_MAKERS[kind](_Request(train, test, seed, alpha, classes_per_client)))


def class_counts(y: Any, indices: np.ndarray, num_classes: int) -> np.ndarray:
    """How many of these samples each class has: int64 [num_classes]."""
    return np.bincount(np.asarray(y, np.int64)[indices], minlength=num_classes)


def _side(what: str, labels: Any, samples: Samples, clients: int, num_classes: int) -> _Side:
    y = np.asarray(labels, np.int64)
    wanted = [int(samples)] * clients if isinstance(samples, (int, np.integer)) else [int(s) for s in samples]
    if len(wanted) != clients:
        raise DataError(f"{len(wanted)} numbers of {what} samples for {clients} clients; give one per client")
    for client, count in enumerate(wanted):
        if count < 1:
            raise DataError(
                f"client {client} would have {count} {what} samples; every client needs at least one"
            )
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise DataError(
            f"{what} labels from {y.min()} to {y.max()}, but {num_classes} classes numbered from 0"
        )
    if max(wanted) > len(y):
        raise DataError(
            f"{max(wanted)} {what} samples for one client, but the data set has {len(y)}; ask for fewer"
        )
    return _Side(what, y, wanted, num_classes)


def _shares(random: np.random.RandomState, request: _Request) -> np.ndarray:
    """q [clients, classes], rows sum to 1. Drawn first, so both splits of one seed have the same q."""
    alpha = request.alpha
    if alpha is None or not (0 < alpha < np.inf):
        raise DataError(f"alpha = {alpha}; a Dirichlet split needs a number above 0")
    q = random.dirichlet([alpha] * request.train.num_classes, len(request.train.wanted))
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


def _dirichlet(request: _Request) -> tuple[PerClient, PerClient]:
    """The paper's split."""

    def one(side: _Side) -> PerClient:
        random = request.random()
        q = _shares(random, request)
        pools = side.by_class()
        clients = []
        for share, samples in zip(q, side.wanted, strict=True):
            parts = []
            for c, count in enumerate(_counts(share, samples)):
                if count and not len(pools[c]):
                    raise DataError(
                        f"class {c} has no {side.what} samples, but {count} are wanted; "
                        "use another kind of split"
                    )
                # drawn even for 0 samples: choice moves the random state
                parts.append(random.choice(pools[c], count, replace=count > len(pools[c])))
            clients.append(np.concatenate(parts).astype(np.int64))
        return clients

    return one(request.train), one(request.test)


# --- splits in which clients share no samples ----------------------------------------------------------


def _dirichlet_disjoint(request: _Request) -> tuple[PerClient, PerClient]:
    """Test shares follow what a client really got to train on, which differs from q where a class ran out."""
    random = request.random()
    train = _deal(random, request.train, _shares(random, request))
    y, classes = request.train.y, request.train.num_classes
    got = np.stack([class_counts(y, indices, classes) for indices in train])
    return train, _deal(random, request.test, got / got.sum(axis=1, keepdims=True))


def _deal(random: np.random.RandomState, side: _Side, q: np.ndarray) -> PerClient:
    """Each client's share of each class as far as it lasts; then gaps are filled, largest shares first.

    Two passes, so that nobody's gap is filled with what a later client has a claim to.
    """
    side.refuse_more_than_exist()
    pools = [random.permutation(pool) for pool in side.by_class()]
    used = [0] * len(pools)

    def take(c: int, count: int) -> np.ndarray:
        start = used[c]
        used[c] = min(start + count, len(pools[c]))
        return pools[c][start : used[c]]

    clients = [
        [take(c, count) for c, count in enumerate(_counts(share, samples))]
        for share, samples in zip(q, side.wanted, strict=True)
    ]
    for parts, share, samples in zip(clients, q, side.wanted, strict=True):
        for c in np.argsort(-share, kind="stable"):
            parts.append(take(int(c), samples - sum(map(len, parts))))
    return [np.concatenate(parts).astype(np.int64) for parts in clients]


def _iid(request: _Request) -> tuple[PerClient, PerClient]:
    def one(side: _Side) -> PerClient:
        side.refuse_more_than_exist()
        order = request.random().permutation(len(side.y)).astype(np.int64)
        return np.split(order[: sum(side.wanted)], np.cumsum(side.wanted)[:-1])

    return one(request.train), one(request.test)


# --- k classes per client --------------------------------------------------------------------------------


def _classes(request: _Request) -> tuple[PerClient, PerClient]:
    k, num_classes = request.classes_per_client, request.train.num_classes
    if k is None or not 1 <= k <= num_classes:
        raise DataError(f"classes_per_client = {k}; it must be from 1 to {num_classes}")
    random = request.random()
    chosen = _choose_classes(random, len(request.train.wanted), k, num_classes)
    return _equal_parts(random, request.train, chosen), _equal_parts(random, request.test, chosen)


def _choose_classes(random: np.random.RandomState, clients: int, k: int, num_classes: int) -> PerClient:
    """Each client takes the k classes taken least often so far, ties by lot: none is left out for long."""
    taken = np.zeros(num_classes, np.int64)
    chosen = []
    for _ in range(clients):
        lot = random.permutation(num_classes)
        mine = np.sort(lot[np.argsort(taken[lot], kind="stable")][:k])
        taken[mine] += 1
        chosen.append(mine)
    return chosen


def _equal_parts(random: np.random.RandomState, side: _Side, chosen: PerClient) -> PerClient:
    """Clients take consecutive pieces of each shuffled class, starting again at its end.

    So clients share samples only when a class has fewer than all of them want, and then as evenly as can be.
    """
    pools = [random.permutation(pool) for pool in side.by_class()]
    start = [0] * len(pools)
    clients = []
    for classes, samples in zip(chosen, side.wanted, strict=True):
        parts = []
        for position, c in enumerate(classes):
            count = samples // len(classes) + (position < samples % len(classes))
            if count > len(pools[c]):
                raise DataError(
                    f"{count} {side.what} samples of class {c} for one client, but there are "
                    f"{len(pools[c])}; take fewer samples or more classes per client"
                )
            parts.append(pools[c][(start[c] + np.arange(count)) % max(len(pools[c]), 1)])
            start[c] += count
        clients.append(np.concatenate(parts).astype(np.int64))
    return clients


_MAKERS: dict[str, Callable[[_Request], tuple[PerClient, PerClient]]] = {
    "dirichlet": _dirichlet,
    "dirichlet-disjoint": _dirichlet_disjoint,
    "classes": _classes,
    "iid": _iid,
}
KINDS = tuple(_MAKERS)
