"""Tiny data sets in the official formats: every byte is known, so the readers can be checked against it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedpurin.data import is_present
from fedpurin.data.catalog import DatasetSpec, FileSpec


@pytest.fixture
def official() -> Callable[[str], Path]:
    """The folder with the official files of a data set; the test is skipped where they are not."""

    def folder_of(name: str) -> Path:
        folder = os.environ.get("FEDPURIN_DATA", "")
        if folder and os.environ.get("CI") == "true":
            assert is_present(name, folder), f"FEDPURIN_DATA = {folder} has no {name}"
        if not folder or not is_present(name, folder):
            pytest.skip(f"no {name} in FEDPURIN_DATA = {folder!r}; CI's script lays it out")
        return Path(folder)

    return folder_of


class Tiny:
    """A data set of 2x3 images: what its files hold, and the table entry that describes them."""

    def __init__(self, kind: str, channels: int, label_bytes: int = 1) -> None:
        random = np.random.RandomState(7)
        self.x = {
            s: random.randint(0, 256, (n, channels, 2, 3)).astype(np.uint8)
            for s, n in (("train", 6), ("test", 4))
        }
        self.y = {"train": np.array([0, 1, 2, 2, 1, 0]), "test": np.array([2, 1, 0, 0])}
        self.files = self._idx() if kind == "idx" else self._records(label_bytes)
        contents = {name: content for name, (_, _, _, content) in self.files.items()}
        self.source = DatasetSpec(
            name="tiny",
            folder="tiny-folder",
            shape=(channels, 2, 3),
            classes=("a", "b", "c"),
            files=tuple(
                FileSpec(name, split, part, count, hashlib.sha256(contents[name]).hexdigest())
                for name, (split, part, count, _) in self.files.items()
            ),
            label_bytes=label_bytes,
            archive=None if kind == "idx" else "tiny.tar.gz",
        )
        self.contents = contents

    def _idx(self) -> dict:
        files = {}
        for split in ("train", "test"):
            x, y = self.x[split], self.y[split]
            head = struct.pack(
                ">IIII", 2051, len(y), 2, 3
            )  # 2051 and 2049: the idx magic numbers of 3-D and 1-D bytes
            files[f"{split}-images.gz"] = (split, "images", len(y), head + x.tobytes())
            head = struct.pack(">II", 2049, len(y))
            files[f"{split}-labels.gz"] = (split, "labels", len(y), head + y.astype(np.uint8).tobytes())
        return files

    def _records(self, label_bytes: int) -> dict:
        def records(split: str, rows: slice) -> bytes:
            coarse = b"\x09" * (label_bytes - 1)  # a value that would be refused as a class
            pairs = zip(self.y[split][rows], self.x[split][rows], strict=True)
            return b"".join(coarse + bytes([label]) + image.tobytes() for label, image in pairs)

        return {
            "batch_1.bin": ("train", "records", 4, records("train", slice(0, 4))),
            "batch_2.bin": ("train", "records", 2, records("train", slice(4, 6))),
            "test.bin": ("test", "records", 4, records("test", slice(0, 4))),
        }

    def packed(self, name: str) -> bytes:
        content = self.contents[name]
        return gzip.compress(content) if name.endswith(".gz") else content

    def write(self, root: Path) -> Path:
        """The unpacked files below a data directory; returns their folder."""
        folder = root / self.source.folder
        folder.mkdir(parents=True)
        for name in self.contents:
            (folder / name).write_bytes(self.packed(name))
        return folder

    def archive(self, prefix: str = "", extra: dict[str, bytes] | None = None, leave_out: str = "") -> bytes:
        """The files as a .tar.gz, test batch first: nothing may depend on the order of members."""
        buffer = io.BytesIO()
        members = {
            f"{prefix}{self.source.folder}/{n}": c
            for n, c in reversed(self.contents.items())
            if n != leave_out
        }
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in {**(extra or {}), **members}.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    def with_source(self, **changes) -> Tiny:
        self.source = replace(self.source, **changes)
        return self


@pytest.fixture(params=["idx", "cifar-10", "cifar-100"])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    """Each official format in turn."""
    return _make(request.param)


@pytest.fixture
def tiny_idx() -> Tiny:
    return _make("idx")


@pytest.fixture
def tiny_cifar() -> Tiny:
    return _make("cifar-100")


def _make(kind: str) -> Tiny:
    forms = {"idx": ("idx", 1, 1), "cifar-10": ("records", 3, 1), "cifar-100": ("records", 3, 2)}
    return Tiny(*forms[kind])
