"""Data sets as tensors resident in memory: bundled, official, or the user's own function.

What a user brings is checked and becomes uint8 [n, C, H, W] (0 to 255) or float32 [n, C, H, W] (taken as they
are); features stay [n, f]; labels int64 [n].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpurin.data.official import read, resolve_data_dir, source_named
from fedpurin.errors import DataError
from fedpurin.plugins import load_function

MAX_CHANNELS = 4  # an axis this short at the end, and longer ones before it, means channels-last


@dataclass(frozen=True, eq=False)
class Dataset:
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
    return _dataset(name, classes, four)


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


def _dataset(name: str, classes: Sequence[str], four: Sequence[np.ndarray]) -> Dataset:
    return Dataset(name, list(classes), *map(torch.from_numpy, four))


# --- what a user brings -------------------------------------------------------------------------------------


def as_images(given: Any, what: str) -> np.ndarray:
    """Accepts [n, H, W], [n, C, H, W], [n, H, W, C] where it is plain which is meant, and features [n, f]."""
    x = _as_array(given, what)
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"{what} has values of type {x.dtype}; give images as uint8 or as floats")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] <= MAX_CHANNELS < min(x.shape[1], x.shape[2]):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim not in (2, 4) or 0 in x.shape:
        raise DataError(
            f"{what} has shape {list(np.shape(given))}; give images as [n, channels, height, width]"
        )
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes Inf and is refused below
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise DataError(f"{what} holds NaN, Inf or values too large for float32; clean the images first")
    return np.ascontiguousarray(x)


def as_labels(given: Any, what: str) -> np.ndarray:
    """Accepts whole numbers >= 0 of any integer type, [n] or [n, 1]."""
    y = _as_array(given, what)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise DataError(
            f"{what} has shape {list(np.shape(given))} and type {y.dtype}; give labels as whole numbers [n]"
        )
    # an unsigned 64-bit label may not fit; the largest sensible one is far below
    if y.size and (y.min() < 0 or y.max() > np.iinfo(np.int32).max):
        raise DataError(f"{what} has labels from {y.min()} to {y.max()}; number the classes from 0")
    return np.ascontiguousarray(y.astype(np.int64))


def as_pair(x: Any, y: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = as_images(x, f"the {what} images"), as_labels(y, f"the {what} labels")
    if len(images) != len(labels):
        raise DataError(
            f"{what}: {len(images)} images but {len(labels)} labels; there must be one label per image"
        )
    return images, labels


def as_four(given: Any, what: str, num_classes: int | None = None) -> tuple[np.ndarray, ...]:
    """Validates (train_x, train_y, test_x, test_y); `what` names their origin in messages."""
    if not isinstance(given, (tuple, list)) or len(given) != 4:
        raise DataError(f"{what} gave {type(given).__name__}, expected (train_x, train_y, test_x, test_y)")
    train_x, train_y = as_pair(given[0], given[1], f"{what}: train")
    test_x, test_y = as_pair(given[2], given[3], f"{what}: test")
    if train_x.shape[1:] != test_x.shape[1:] or train_x.dtype != test_x.dtype:
        raise DataError(
            f"{what}: train images are {list(train_x.shape[1:])} {train_x.dtype}, "
            f"test images {list(test_x.shape[1:])} {test_x.dtype}; they must be alike"
        )
    largest = int(max(train_y.max(), test_y.max()))
    if num_classes is not None and largest >= num_classes:
        smallest = int(min(train_y.min(), test_y.min()))
        from_one = smallest >= 1 and largest == num_classes
        remedy = f"yours go from {smallest} to {largest}" + (": subtract 1 from each" if from_one else "")
        raise DataError(
            f"{what}: label {largest} found, but there are {num_classes} classes, numbered from 0; {remedy}"
        )
    return train_x, train_y, test_x, test_y


def _as_array(given: Any, what: str) -> np.ndarray:
    try:
        if hasattr(given, "detach"):  # a torch tensor, perhaps on another device or with a gradient
            given = given.detach().cpu()
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what} is no array ({error}); give a numpy array or a torch tensor") from None
    if array.dtype == object:
        raise DataError(
            f"{what} is an array of Python objects; give one array of numbers, all images of one size"
        )
    return array
