"""Checks and the one accepted form of images and labels that a user brings.

Images become uint8 [n, C, H, W] (0 to 255) or float32 [n, C, H, W] (taken as they are); features stay [n, f];
labels int64 [n].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpurin.errors import DataError

MAX_CHANNELS = 4  # an axis this short at the end, and longer ones before it, means channels-last


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
