"""A site's own data: an .npz file, a folder of images, or a function.

    site.npz                  arrays x_train, y_train, x_test, y_test; or x and y, a fifth is for testing
    folder/CLASS/*.png        one folder per class; a fifth of each class is for testing
    folder/train/CLASS/*.png  and folder/test/CLASS/*.png
    package.module:function   returns (train_x, train_y, test_x, test_y)

Files are read without pickle. Image folders need the extra `images`.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedpurin.data.datasets import Dataset, as_four, as_pair, call
from fedpurin.errors import DataError
from fedpurin.files import regular
from fedpurin.memory import check_fits

FOUR = ("x_train", "y_train", "x_test", "y_test")
DAMAGED = (
    *(ValueError, LookupError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(tokenize.TokenError, SyntaxError, TypeError, OverflowError),  # of numpy, reading a header
)
TEST_EVERY = 5  # the fifth, tenth, ... sample of each class is for testing


def load_own(
    spec: str,
    *,
    classes: Sequence[str] | None = None,
    num_classes: int | None = None,
    shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train and test images and labels of one site, in the form of `Dataset`.

    `classes` orders the folders of images, which all sites must do alike: a folder that is not among them is
    refused. Without it folders are numbered by name, which is good for looking at one site's data only.
    `num_classes` and `shape` are what the federation agreed on; data that does not fit is refused.
    """
    if classes is not None and num_classes is None:
        num_classes = len(classes)
    path = Path(spec).expanduser()
    if path.is_dir():
        from fedpurin.data.folders import read_folder

        channels = shape[0] if shape is not None and len(shape) == 3 else None
        _, sides = read_folder(path, classes, channels)
        four = (*sides[0], *sides[1]) if len(sides) == 2 else divide(*sides[0], str(path))
    elif path.suffix == ".npz" or path.exists():
        four = read_npz(path)
    elif ":" in spec:
        given = call(spec)
        if isinstance(given, Dataset):
            given = (given.train_x, given.train_y, given.test_x, given.test_y)
        four = given
    else:
        raise DataError(
            f"{spec} does not exist; give an .npz file, a folder of images, or package.module:function"
        )
    train_x, train_y, test_x, test_y = as_four(four, spec, num_classes)
    return (
        torch.from_numpy(_shaped(train_x, shape, spec)),
        torch.from_numpy(train_y),
        torch.from_numpy(_shaped(test_x, shape, spec)),
        torch.from_numpy(test_y),
    )


def read_place(place: Path | str) -> tuple[np.ndarray | None, ...]:
    """The files of one of several clients: a folder, whose classes keep their names, or an .npz file."""
    path = Path(place).expanduser()
    if path.is_dir():
        from fedpurin.data.folders import read_folder

        names, sides = read_folder(path)
        named = [(x, np.array(names)[y]) for x, y in sides]
        return (*named[0], *(named[1] if len(named) == 2 else (None, None)))
    if path.suffix != ".npz" and not path.exists():
        raise DataError(f"{place} does not exist; give a folder of images or an .npz file")
    return read_npz(path)


def read_npz(path: Path) -> tuple[np.ndarray, ...]:
    try:
        if not zipfile.is_zipfile(regular(path)):  # np.load would take other formats, too
            path.open("rb").close()
            raise DataError(f"{path} is not an .npz file; write one with numpy.savez")
        # a stream of our own: numpy leaves the file open where the archive is damaged
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = set(file.files)
            wanted = FOUR if names.issuperset(FOUR) else ("x", "y")
            if not names.issuperset(wanted):
                raise DataError(
                    f"{path} has the arrays {', '.join(sorted(names)) or 'none'}; "
                    f"expected {', '.join(FOUR)}, or x, y"
                )
            size = sum(file.zip.getinfo(f"{name}.npy").file_size for name in wanted)
            check_fits(size if wanted == FOUR else 2 * size, path)  # what is divided is copied
            arrays = tuple(file[name] for name in wanted)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; give the path of an .npz file") from None
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read ({error}); write plain arrays with numpy.savez") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from None
    if len(arrays) == 4:
        return arrays
    x, y = as_pair(arrays[0], arrays[1], str(path))
    return divide(x, y, str(path))


def divide(x: np.ndarray, y: np.ndarray, what: str) -> tuple[np.ndarray, ...]:
    """Four fifths for training, one for testing, of every class: the same for the same data, in any run.

    Samples are shuffled first, since files are often sorted by time or by source.
    """
    if len(y) < 2:
        raise DataError(f"{what} has {len(y)} sample(s); at least two are needed, one of them for testing")
    shuffled = np.random.RandomState(0).permutation(len(y))
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    test = by_class[TEST_EVERY - 1 :: TEST_EVERY] if len(y) >= TEST_EVERY else by_class[-1:]
    is_test = np.zeros(len(y), bool)
    is_test[test] = True
    return x[~is_test], y[~is_test], x[is_test], y[is_test]


def _shaped(x: np.ndarray, shape: Sequence[int] | None, what: str) -> np.ndarray:
    """The agreed shape of one sample, where it differs by axes of length 1 only."""
    if shape is None or tuple(shape) == x.shape[1:]:
        return x
    if [s for s in shape if s != 1] != [s for s in x.shape[1:] if s != 1] or math.prod(shape) == 0:
        raise DataError(
            f"{what}: samples of shape {list(x.shape[1:])}, but the federation uses {list(shape)}"
        )
    return x.reshape(len(x), *shape)
