"""Data sets as tensors resident in memory: bundled, official, or the user's own function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpurin.data.arrays import as_four
from fedpurin.data.official import Arrays, read, resolve_data_dir, source_named
from fedpurin.errors import DataError
from fedpurin.plugins import load_function


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images are uint8 (0 to 255), or float32 from a user's own function, which are taken as they are."""

    name: str
    classes: list[str]
    train_x: Tensor  # [n, C, H, W], or [n, f] for features
    train_y: Tensor  # int64 [n]
    test_x: Tensor
    test_y: Tensor

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample: channels, height, width of an image; the number of features."""
        return tuple(self.train_x.shape[1:])


def load(name: str, data_dir: Path | str | None = None) -> Dataset:
    """A data set by name (`fedpurin.data.NAMES`), or from the user's own `package.module:function`."""
    if ":" in name:
        return from_function(name)
    source = source_named(name)
    return _dataset(name, source.classes, read(source, resolve_data_dir(data_dir)))


def from_function(name: str) -> Dataset:
    """Calls a function that returns a Dataset or (train_x, train_y, test_x, test_y), checked."""
    given = call(name)
    classes: list[str] | None = None
    if isinstance(given, Dataset):
        classes = [str(c) for c in given.classes]
        given = (given.train_x, given.train_y, given.test_x, given.test_y)
    four = as_four(given, name, None if classes is None else len(classes))
    if classes is None:
        classes = [str(c) for c in range(_count_classes(name, four[1], four[3]))]
    if len(classes) < 2:
        raise DataError(f"{name}: a data set with one class; there must be at least two to tell apart")
    return _dataset(name, classes, Arrays(*four))


def _count_classes(name: str, train_y: np.ndarray, test_y: np.ndarray) -> int:
    """Labels that leave numbers out are a mistake more often than classes that nobody has."""
    labels = np.unique(np.concatenate([train_y, test_y]))
    if len(labels) != labels[-1] + 1:
        absent = int(np.flatnonzero(labels != np.arange(len(labels)))[0])
        raise DataError(
            f"{name}: labels from {labels[0]} to {labels[-1]}, but no sample has label {absent}; number the "
            "classes from 0 without gaps, or return a fedpurin.Dataset, which names its classes"
        )
    return len(labels)


def call(name: str) -> Any:
    """Runs the user's function. What it raises becomes one line, with its cause attached."""
    function = load_function(name, DataError)
    try:
        return function()
    except Exception as error:
        raise DataError(f"{name} failed: {type(error).__name__}: {error}") from error


def _dataset(name: str, classes: Sequence[str], arrays: Arrays) -> Dataset:
    return Dataset(
        name,
        list(classes),
        torch.from_numpy(arrays.train_x),
        torch.from_numpy(arrays.train_y),
        torch.from_numpy(arrays.test_x),
        torch.from_numpy(arrays.test_y),
    )
