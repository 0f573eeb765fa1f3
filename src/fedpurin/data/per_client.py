"""Data as users have them, per client, in one form: tensors for training and testing.

    {"Berlin": (x, y), "Paris": (x, y)}           numpy arrays or tensors; a share is held out for testing
    {"Berlin": (x, y, test_x, test_y), ...}       or {"train": ..., "test": ...} with any form inside
    {"Berlin": dataset, ...}                      a torch Dataset, a Hugging Face dataset, a DataFrame
    {"Berlin": "photos/berlin", ...}              a folder of images, one folder per class; an .npz file
    [(x, y), (x, y)]                              clients 0, 1, ...
    frame, client="city", y="price"               one table, divided by a column

Whole numbers stay whole: tokens are not made floats. uint8 is taken for pixels and scaled to [0, 1] in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpurin.data.columns import as_tensor, is_table, pair_of, rows_by
from fedpurin.data.own import read_place
from fedpurin.errors import DataError
from fedpurin.train import ClientData

TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Clients:
    """Who holds what. Build it with `fedpurin.clients`."""

    names: tuple[str, ...]
    parts: tuple[ClientData, ...]
    classes: tuple[str, ...]  # () where targets are no classes

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return tuple(self.parts[0].train_x.shape[1:])

    @property
    def outputs(self) -> int:
        """What a model gives for a sample: a number per class, or as many as the target has."""
        return len(self.classes) or int(np.prod(self.parts[0].train_y.shape[1:]))

    @property
    def usual_loss(self) -> str:
        """By the type of the targets."""
        y = self.parts[0].train_y
        if not y.is_floating_point():
            return "cross_entropy"
        several = y.dim() == 2 and y.shape[1] > 1
        yes_or_no = all(((part.train_y == 0) | (part.train_y == 1)).all() for part in self.parts)
        return "bce" if several and yes_or_no else "mse"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every sample: a run is continued with the same data only."""
        sha = hashlib.sha256()
        for part in self.parts:
            for tensor in (part.train_x, part.train_y, part.test_x, part.test_y):
                sha.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
                sha.update(tensor.contiguous().numpy().tobytes())
        return sha.hexdigest()

    def counts(self) -> tuple[list[list[int]], list[list[int]]]:
        """Samples by client and class, for training and for testing."""
        sides = [[p.train_y for p in self.parts], [p.test_y for p in self.parts]]
        train, test = (
            [torch.bincount(y, minlength=len(self.classes)).tolist() for y in side] for side in sides
        )
        return train, test

    def __repr__(self) -> str:
        sizes = [len(part.train_y) for part in self.parts]
        what = f"{len(self.classes)} classes" if self.classes else f"targets of {self.outputs} number(s)"
        return (
            f"Clients({len(self)} clients, {min(sizes)} to {max(sizes)} training samples "
            f"of shape {list(self.shape)}, {what})"
        )


def clients(
    data: Any,
    *,
    client: str | None = None,
    x: str | Sequence[str] | None = None,
    y: str | Sequence[str] | None = None,
    test: float = TEST_SHARE,
    classes: Sequence[str] | None = None,
) -> Clients:
    """Anybody's data, as in the examples above, checked and ready for `fedpurin.run`.

    client   the column that divides one table among clients
    x, y     the columns of inputs and target; by default y is named label, target or y, and x is the rest
    test     the share that each client holds out for testing, where no test data are given
    classes  names of the classes 0, 1, ...; by default their numbers, or the labels where they are text
    """
    if isinstance(data, Clients):
        return data
    if not 0 <= test < 1:
        raise DataError(f"test = {test} must be a share from 0 to below 1")
    if client is not None:
        data = rows_by(data, client)
    elif is_table(data):
        raise DataError("this is one table; name the column that tells the clients: client=...")
    if not isinstance(data, Mapping):
        if not isinstance(data, Sequence) or isinstance(data, str | bytes):
            raise DataError(f"data is a {type(data).__name__}; give a dict of client -> (x, y), or a list")
        data = dict(enumerate(data))
    if not data:
        raise DataError("data has no clients; give a dict of client -> (x, y)")
    names = tuple(str(name) for name in data)
    if len(set(names)) < len(names):
        raise DataError(f"two clients have the same name among {', '.join(sorted(names))}")
    drop = () if client is None else (client,)
    four = [_four(entry, f"client {name!r}", x, y, drop) for name, entry in data.items()]
    named = _named_classes(four, classes)
    parts = tuple(_part(*entry, named, test, name) for entry, name in zip(four, names, strict=True))
    return Clients(names, parts, _check_alike(parts, names, named))


Arrays = tuple[Any, Any, Any, Any]  # train_x, train_y, and test_x, test_y or None; labels may still be text


def _four(entry: Any, what: str, x: Any, y: Any, drop: tuple[str, ...]) -> Arrays:
    if isinstance(entry, str | Path):
        train_x, train_y, test_x, test_y = read_place(entry)
        return train_x, train_y, test_x, test_y
    if isinstance(entry, tuple | list) and len(entry) == 4:
        return entry[0], entry[1], entry[2], entry[3]
    if isinstance(entry, Mapping) and "train" in entry:
        test = entry.get("test", entry.get("validation"))
        pair = (None, None) if test is None else pair_of(test, f"{what}: test", x, y, drop)
        return *pair_of(entry["train"], f"{what}: train", x, y, drop), *pair
    return *pair_of(entry, what, x, y, drop), None, None


def _named_classes(four: Sequence[Arrays], classes: Sequence[str] | None) -> tuple[str, ...]:
    """The given names; or the labels, sorted, where they are text; else ()."""
    if classes is not None:
        return tuple(str(name) for name in classes)
    seen: set[str] = set()
    for _, train_y, _, test_y in four:
        for y in (train_y, test_y):
            if y is not None and _is_text(y):
                seen |= {str(label) for label in np.asarray(y).ravel()}
    return tuple(sorted(seen))


def _is_text(y: Any) -> bool:
    if isinstance(y, Tensor):
        return False
    labels = np.asarray(y)
    if labels.dtype.kind == "O":
        return all(isinstance(label, str) for label in labels.ravel())
    return labels.dtype.kind in "US"


def _targets(y: Any, named: tuple[str, ...], what: str) -> Tensor:
    if _is_text(y):
        number = {name: i for i, name in enumerate(named)}
        unknown = sorted({str(v) for v in np.asarray(y).ravel()} - set(number))
        if unknown:
            raise DataError(f"{what}: the label {unknown[0]!r} is not among classes = {list(named)}")
        y = np.array([number[str(v)] for v in np.asarray(y).ravel()])
    targets = as_tensor(y, f"{what}: targets")
    if targets.dim() == 1 and getattr(y, "dtype", None) in (torch.bool, np.dtype(bool)):
        targets = targets.long()  # no and yes are classes
    if not targets.is_floating_point():
        targets = targets.long()
        if targets.dim() == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        if targets.dim() == 1 and len(targets) and targets.min() < 0:
            raise DataError(f"{what}: label {int(targets.min())}; number the classes from 0")
    return targets


def _part(
    x: Any, y: Any, test_x: Any, test_y: Any, named: tuple[str, ...], share: float, name: str
) -> ClientData:
    what = f"client {name!r}"
    inputs, targets = as_tensor(x, f"{what}: inputs"), _targets(y, named, what)
    _check_lengths(inputs, targets, what)
    if test_x is not None:
        tests = as_tensor(test_x, f"{what}: test inputs"), _targets(test_y, named, f"{what}: test")
        _check_lengths(*tests, f"{what}: test")
        return ClientData(inputs, targets, *tests)
    held = _held_out(targets, share)
    return ClientData(inputs[~held], targets[~held], inputs[held], targets[held])


def _check_lengths(x: Tensor, y: Tensor, what: str) -> None:
    if len(x) != len(y):
        raise DataError(f"{what} has {len(x)} samples but {len(y)} targets; there must be one for each")
    if not len(x):
        raise DataError(f"{what} has no samples; leave it out")


def _held_out(y: Tensor, share: float) -> Tensor:
    """bool [n]: the test samples, spread evenly over the classes; the same for the same data."""
    n = len(y)
    held = torch.zeros(n, dtype=torch.bool)
    count = min(max(1, round(share * n)), n - 1) if share > 0 else 0
    if count > 0:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
        if not y.is_floating_point() and y.dim() == 1:
            order = order[torch.sort(y[order], stable=True).indices]
        held[order[((torch.arange(count) + 0.5) * n / count).long()]] = True
    return held


def _check_alike(
    parts: Sequence[ClientData], names: Sequence[str], named: tuple[str, ...]
) -> tuple[str, ...]:
    """All samples and targets of one form; the names of the classes."""
    first = parts[0]
    for part, name in zip(parts, names, strict=True):
        for what, own, other in (
            ("samples", part.train_x, first.train_x),
            ("targets", part.train_y, first.train_y),
            ("samples", part.test_x, first.train_x),
            ("targets", part.test_y, first.train_y),
        ):
            if (own.shape[1:], own.dtype) != (other.shape[1:], other.dtype):
                raise DataError(
                    f"client {name!r} has {what} of shape {list(own.shape[1:])} and type {own.dtype}, client "
                    f"{names[0]!r} of {list(other.shape[1:])} and {other.dtype}; make them alike"
                )
    if first.train_y.is_floating_point() or first.train_y.dim() != 1:
        return ()
    largest = max(int(y.max()) for part in parts for y in (part.train_y, part.test_y) if len(y))
    if named and largest >= len(named):
        raise DataError(f"label {largest} found, but there are {len(named)} classes, numbered from 0")
    return named or tuple(str(c) for c in range(largest + 1))
