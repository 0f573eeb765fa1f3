"""Folders of images, one per class, as arrays."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedpurin.errors import DataError, MissingExtraError
from fedpurin.files import regular
from fedpurin.memory import check_fits

SUFFIXES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")  # Pillow goes by the content: of all its formats, PostScript is run as a program
GREY_MODES = ("1", "L")

try:
    from PIL import Image, UnidentifiedImageError
except ImportError as missing:
    raise MissingExtraError("images", "reading a folder of images") from missing

DAMAGED = (  # of Pillow, reading headers and pixels
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, RuntimeError, OverflowError),
    *(struct.error, zlib.error, MemoryError),
)

Side = tuple[np.ndarray, np.ndarray]  # images uint8 [n, C, H, W], labels int64 [n]


def read_folder(
    root: Path, classes: Sequence[str] | None = None, channels: int | None = None
) -> tuple[list[str], list[Side]]:
    """The classes, and root/CLASS/* as one side, or root/train/CLASS/* and root/test/CLASS/* as two."""
    divided = (root / "train").is_dir() and (root / "test").is_dir()
    sides = [root / "train", root / "test"] if divided else [root]
    try:
        names = _class_names(root, sides, classes)
        files = [_files(side, names) for side in sides]
    except OSError as error:
        raise DataError(f"{error.filename or root} cannot be read ({error.strerror or error})") from None
    for side, images in zip(sides, files, strict=True):
        if not images:
            raise DataError(f"{side} has no images; expected folders named by class with .png or .jpg files")
    size, channels = _common_form([path for images in files for path, _ in images], channels)
    return names, [_read(images, size, channels) for images in files]


def _class_names(root: Path, sides: list[Path], given: Sequence[str] | None) -> list[str]:
    folders = sorted(
        {p.name for side in sides for p in side.iterdir() if p.is_dir() and not p.name.startswith(".")}
    )
    if given is None:
        return folders
    unknown = sorted(set(folders) - set(given))
    if unknown:
        raise DataError(
            f"{root} has folders {', '.join(unknown)}, which are no classes; accepted: {', '.join(given)}"
        )
    return list(given)


def _files(side: Path, names: list[str]) -> list[tuple[Path, int]]:
    """Images with their class, by class and then by name: the order must not depend on the file system."""
    return [
        (path, label)
        for label, name in enumerate(names)
        if (side / name).is_dir()
        for path in sorted((side / name).iterdir())
        if path.suffix.lower() in SUFFIXES and not path.is_dir() and not path.name.startswith(".")
    ]


def _common_form(paths: list[Path], channels: int | None) -> tuple[tuple[int, int], int]:
    """(width, height) of all images, and 1 channel if all are grey, else 3. Reads the headers only."""
    size, grey = None, True
    for path in paths:
        with _opened(path) as image:
            size = size or image.size
            if image.size != size:
                raise DataError(
                    f"{path} is {image.width}x{image.height}, but {paths[0].name} is {size[0]}x{size[1]}; "
                    "bring all images to one size"
                )
            grey = grey and image.mode in GREY_MODES
    assert size is not None  # callers have at least one image
    return size, channels or (1 if grey else 3)


def _read(files: list[tuple[Path, int]], size: tuple[int, int], channels: int) -> Side:
    if channels not in (1, 3):
        raise DataError(f"images with {channels} channels; folders of images give 1 (grey) or 3 (colour)")
    width, height = size
    check_fits(len(files) * channels * height * width, files[0][0].parent.parent)
    try:
        x = np.empty((len(files), channels, height, width), np.uint8)
    except MemoryError:
        raise DataError(
            f"{len(files)} images of {width}x{height}, as {files[0][0]}, do not fit into memory; "
            "make them smaller"
        ) from None
    for row, (path, _) in enumerate(files):
        with _opened(path) as image:
            try:
                pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
            except DAMAGED as error:
                raise DataError(f"{path} is damaged ({error}); replace or remove it") from None
        x[row] = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return x, np.array([label for _, label in files], np.int64)


def _opened(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():  # from half of the pixels that it refuses, Pillow warns only
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(regular(path), formats=FORMATS)
    except UnidentifiedImageError:
        raise DataError(
            f"{path} is not an image in {' or '.join(FORMATS)} format; convert, replace or remove it"
        ) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as bomb:
        raise DataError(f"{path} is too large an image ({bomb}); make it smaller or remove it") from None
    except DAMAGED as error:
        problem = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} is not an image that can be read ({problem}); replace or remove it"
        ) from None
