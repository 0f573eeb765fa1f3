"""From official files to numpy arrays: bounded, checked, never pickle.

Every read stops one byte after the expected size, so a hostile file costs no more memory than a right one.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import platformdirs

from fedpurin.data.catalog import SOURCES, DatasetSpec, FileSpec
from fedpurin.errors import DataError
from fedpurin.files import regular

ENVIRONMENT = "FEDPURIN_DATA"
HOMELESS = "fedpurin-data"
TAR_SLACK = 1 << 20  # headers, padding and the small text files of an archive


class Arrays(NamedTuple):
    """Images uint8 [n, C, H, W] and labels int64 [n] of both splits."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class FileCheck(NamedTuple):
    file: str
    ok: bool
    message: str


def resolve_data_dir(data_dir: Path | str | None = None) -> Path:
    """The argument, else the environment variable FEDPURIN_DATA, else the user's cache folder, or for a user
    without a home (in a container) a folder here."""
    named = data_dir or os.environ.get(ENVIRONMENT)
    try:
        folder = Path(named or platformdirs.user_cache_dir("fedpurin", appauthor=False)).expanduser()
    except RuntimeError as problem:
        if named:
            raise _no_folder(named, str(problem)) from None
        folder = Path(HOMELESS)
    try:
        (folder / "name").exists()  # whether one may ask for what is in it
    except OSError as problem:
        raise _no_folder(folder, problem.strerror) from None
    return folder


def _no_folder(named: Path | str, why: str | None) -> DataError:
    return DataError(
        f"{str(named)[:200]} cannot be the data folder ({why}); name another with --data-dir or {ENVIRONMENT}"
    )


def source_named(name: str) -> DatasetSpec:
    if name not in SOURCES:
        raise DataError(
            f"unknown data set {name!r}; accepted: {', '.join(SOURCES)}, "
            "or your own as package.module:function"
        )
    return SOURCES[name]


def check(name: str, data_dir: Path | str | None = None) -> list[FileCheck]:
    """Reads every file of a data set and says of each whether it is the official one."""
    return check_source(source_named(name), resolve_data_dir(data_dir))


def is_present(name: str, data_dir: Path | str | None = None) -> bool:
    """Whether the files are there at all; `check` says whether they are right."""
    source, root = source_named(name), resolve_data_dir(data_dir)
    folder = find_folder(source, root)
    return find_archive(source, root) is not None or all((folder / f.name).is_file() for f in source.files)


# --- files and archives -------------------------------------------------------------------------------------


def find_folder(source: DatasetSpec, root: Path) -> Path:
    """The folder of the unpacked files: below the data directory, or the data directory itself."""
    if source.bundled is not None:
        return source.bundled
    folder = root / source.folder
    if not _any_file(source, folder) and _any_file(source, root):
        return root
    return folder


def find_archive(source: DatasetSpec, root: Path) -> Path | None:
    """The official archive, if it is to be read: unpacked files go first."""
    if source.archive is None or _any_file(source, find_folder(source, root)):
        return None
    archive = root / source.archive
    return archive if archive.is_file() else None


def _any_file(source: DatasetSpec, folder: Path) -> bool:
    return any((folder / spec.name).exists() for spec in source.files)


def contents(source: DatasetSpec, root: Path) -> Iterator[tuple[FileSpec, Path, bytes]]:
    """The checked content of every file; from an archive in the order of the archive."""
    archive = find_archive(source, root)
    if archive is not None:
        yield from read_archive(source, archive)
        return
    folder = find_folder(source, root)
    for spec in source.files:
        path = folder / spec.name
        yield spec, path, read_file(source, spec, path)


def read_file(source: DatasetSpec, spec: FileSpec, path: Path) -> bytes:
    """One file, decompressed if its name ends in .gz; of the expected size and checksum, or an error."""
    expected = source.size(spec)
    try:
        regular(path)
        with gzip.open(path) if spec.name.endswith(".gz") else path.open("rb") as file:
            raw = file.read(expected + 1)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {source.remedy}") from None
    except EOFError:
        raise DataError(f"{path} is cut short; {source.remedy}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a sound gzip file ({error}); {source.remedy}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); {source.remedy}") from None
    verify(source, spec, path, raw)
    return raw


def verify(source: DatasetSpec, spec: FileSpec, path: Path, raw: bytes) -> None:
    expected = source.size(spec)
    if len(raw) != expected:
        size = f"more than {expected}" if len(raw) > expected else str(len(raw))
        raise DataError(f"{path} holds {size} bytes, expected {expected}; {source.remedy}")
    if spec.kind != "records":
        check_idx_header(source, spec, path, raw)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != spec.sha256:
        raise DataError(
            f"{path} is not the official file (SHA-256 {digest[:12]}..., "
            f"expected {spec.sha256[:12]}...); {source.remedy}"
        )


def check_idx_header(source: DatasetSpec, spec: FileSpec, path: Path, raw: bytes) -> None:
    dimensions = (spec.count,) if spec.kind == "labels" else (spec.count, *source.shape[1:])
    # idx: two zero bytes, 8 for unsigned bytes, the number of dimensions, then each as a big-endian uint32
    header = struct.pack(f">I{len(dimensions)}I", 0x0800 + len(dimensions), *dimensions)
    if raw[: len(header)] != header:
        raise DataError(
            f"{path} does not start like an idx file of {dimensions} unsigned bytes; {source.remedy}"
        )


class _Bounded:
    """A reader that may be asked for `limit` bytes, then refuses: also past the end, which tarfile would read
    on for as long as a header says."""

    def __init__(self, stream: gzip.GzipFile, limit: int, path: Path, remedy: str) -> None:
        self.stream, self.left, self.path, self.remedy = stream, limit, path, remedy

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise DataError(f"{self.path} unpacks to more than the official archive does; {self.remedy}")
        self.left -= count
        return self.stream.read(count)


class _PlainHeader(tarfile.TarInfo):
    """A tar header as it stands. Extensions (long names, PAX, sparse files), of which the official archives
    have none, are passed over as members of an unknown type: tarfile follows chains of them by recursion, and
    takes the numbers in them on trust."""

    EXTENSIONS = frozenset(b"xgXLKS")
    UNKNOWN = b"?"

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type[0] in cls.EXTENSIONS:
            header.type = cls.UNKNOWN
        return header


def read_archive(source: DatasetSpec, archive: Path) -> Iterator[tuple[FileSpec, Path, bytes]]:
    """The wanted members of a .tar.gz, in memory: nothing is extracted, so no member can choose a path."""
    wanted = {f"{source.folder}/{spec.name}": spec for spec in source.files}
    # tarfile reads in blocks of 10 KiB, also past the end mark
    limit = sum(source.size(spec) for spec in source.files) + TAR_SLACK
    try:
        with gzip.open(regular(archive)) as stream:
            bounded = _Bounded(stream, limit, archive, source.remedy)
            with tarfile.open(
                fileobj=bounded,
                mode="r|",
                tarinfo=_PlainHeader,  # type: ignore[call-overload]
            ) as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # which it keeps for those who come back to them
                    spec = wanted.pop(member.name.removeprefix("./"), None)
                    if spec is None:
                        continue
                    path = archive / spec.name
                    file = tar.extractfile(member) if member.isreg() else None
                    raw = b"" if file is None else file.read(source.size(spec) + 1)
                    verify(source, spec, path, raw)
                    yield spec, path, raw
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{archive} is not a sound .tar.gz ({error}); {source.remedy}") from None
    except OSError as error:
        raise DataError(f"{archive} cannot be read ({error.strerror or error}); {source.remedy}") from None
    if wanted:
        raise DataError(f"{archive} lacks {', '.join(wanted)}; {source.remedy}")


# --- arrays -------------------------------------------------------------------------------------------------


def read(source: DatasetSpec, root: Path) -> Arrays:
    """All images and labels. Arrays are made once at full size and filled file by file."""
    x = {s: np.empty((source.count(s), *source.shape), np.uint8) for s in ("train", "test")}
    y = {s: np.empty(source.count(s), np.int64) for s in ("train", "test")}
    starts = _starts(source)
    for spec, path, raw in contents(source, root):
        rows = slice(starts[spec.name], starts[spec.name] + spec.count)
        if spec.kind == "images":
            x[spec.split][rows] = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, *source.shape)
        elif spec.kind == "labels":
            y[spec.split][rows] = _labels_of(source, path, np.frombuffer(raw, np.uint8, offset=8))
        else:
            records = np.frombuffer(raw, np.uint8).reshape(spec.count, -1)
            y[spec.split][rows] = _labels_of(source, path, records[:, source.label_bytes - 1])
            x[spec.split][rows] = records[:, source.label_bytes :].reshape(-1, *source.shape)
    return Arrays(x["train"], y["train"], x["test"], y["test"])


def _labels_of(source: DatasetSpec, path: Path, labels: np.ndarray) -> np.ndarray:
    if labels.size and labels.max() >= len(source.classes):
        raise DataError(
            f"{path} has label {labels.max()}, expected 0 to {len(source.classes) - 1}; {source.remedy}"
        )
    return labels


def _starts(source: DatasetSpec) -> dict[str, int]:
    """Row of the first image (or label) of each file in its split's arrays."""
    starts: dict[str, int] = {}
    filled: dict[tuple[str, str], int] = {}
    for spec in source.files:
        key = (spec.split, spec.kind)
        starts[spec.name] = filled.get(key, 0)
        filled[key] = starts[spec.name] + spec.count
    return starts


def check_source(source: DatasetSpec, root: Path) -> list[FileCheck]:
    archive = find_archive(source, root)
    if archive is not None:
        try:
            return [FileCheck(str(path), True, "official") for _, path, _ in read_archive(source, archive)]
        except DataError as error:
            return [FileCheck(str(archive), False, str(error))]
    results = []
    folder = find_folder(source, root)
    for spec in source.files:
        path = folder / spec.name
        try:
            read_file(source, spec, path)
            results.append(FileCheck(str(path), True, "official"))
        except DataError as error:
            results.append(FileCheck(str(path), False, str(error)))
    return results
