"""Who holds which samples: index arrays per client, with a fingerprint and a file form; validation samples.

The file is JSON: {"format": "fedpurin-split", "version": 1, "fingerprint", "train": [[...], ...], "test"}.
The fingerprint is the SHA-256 of, for train and then test, the number of clients and for each client the
number of its samples and their indices in order, all as little-endian int64.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.errors import DataError
from fedpurin.files import read_bounded, write_atomic

FORMAT, VERSION = "fedpurin-split", 1
LARGEST = 2**28  # bytes of a file: some thirty million positions


@dataclass(frozen=True, eq=False)
class Split:
    train: list[np.ndarray]  # int64 positions in the training set, one array per client
    test: list[np.ndarray]

    @property
    def clients(self) -> int:
        return len(self.train)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for side in (self.train, self.test):
            digest.update(np.array([len(side)], "<i8").tobytes())
            for indices in side:
                digest.update(np.array([len(indices), *indices], "<i8").tobytes())
        return digest.hexdigest()

    def check_fits(self, train_size: int, test_size: int) -> None:
        """Refuses a split that points outside a data set of this size."""
        for side, size, what in ((self.train, train_size, "train"), (self.test, test_size, "test")):
            largest = max(int(indices.max()) for indices in side)
            if largest >= size:
                raise DataError(
                    f"the split refers to {what} sample {largest}, but the data set has {size}; "
                    "it was made for another data set, so make one for this"
                )

    def save(self, path: Path | str) -> None:
        """Writes the file whole or not at all."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "train": [indices.tolist() for indices in self.train],
            "test": [indices.tolist() for indices in self.test],
        }
        try:
            write_atomic(Path(path), json.dumps(content))
        except OSError as error:
            raise DataError(f"{path} cannot be written ({error.strerror}); choose another folder") from None

    @staticmethod
    def load(path: Path | str) -> Split:
        """Reads a file that `save` wrote; refuses anything else, and any change of a single index."""
        try:
            content = json.loads(read_bounded(Path(path), LARGEST), object_pairs_hook=_once)
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}); give a file written by a split"
            ) from None
        except (ValueError, RecursionError):
            raise DataError(
                f"{path} is not a split file (no JSON, or a name is there twice); make the split again"
            ) from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DataError(f"{path} is not a split file; make the split again")
        version = content.get("version")
        if type(version) is not int or version != VERSION:
            raise DataError(f"{path} has version {version!r:.80}, this fedpurin reads {VERSION}")
        split = Split(*(_clients(content.get(side), side, path) for side in ("train", "test")))
        if len(split.train) != len(split.test) or split.fingerprint != content.get("fingerprint"):
            raise DataError(
                f"{path} is damaged: its fingerprint does not fit its content; make the split again"
            )
        return split


def hold_out(
    indices: np.ndarray, share: float, rank: np.ndarray, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """A client's positions in the data set, divided into those it trains on and its validation samples.

    `rank` has a number for each sample of the data set, and the samples that come first by it are held out.
    Clients that share a sample share its rank, so it is rare that one trains on what another validates on. At
    least one sample is held out and one is left; all copies of a sample are on the same side. Classes play no
    part: a client with few samples of a class may hold out none of them. Both sides keep the order of the
    samples.
    """
    distinct = np.unique(indices)
    if len(distinct) < 2:
        raise DataError(
            f"client {client} has one training sample, and data.validation = {share:g} would hold it out; "
            "give it more samples, or set data.validation = 0"
        )
    count = min(max(1, round(share * len(distinct))), len(distinct) - 1)
    held = distinct[np.argsort(rank[distinct], kind="stable")[:count]]
    is_held = np.isin(indices, held)
    return indices[~is_held], indices[is_held]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that is there twice JSON takes the last without a word."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name is there twice")
    return content


def _clients(given: Any, side: str, path: Path | str) -> list[np.ndarray]:
    """Lists of lists of whole numbers >= 0, none empty."""
    if not isinstance(given, list) or not given:
        raise DataError(f"{path} is damaged: {side} is no list of clients; make the split again")
    for client, indices in enumerate(given):
        if not isinstance(indices, list) or not indices:
            raise DataError(
                f"{path} is damaged: client {client} has no list of {side} samples; make the split again"
            )
        wrong = [i for i in indices if type(i) is not int or not 0 <= i < 2**63]
        if wrong:
            raise DataError(
                f"{path} is damaged: a {side} sample of client {client} is {wrong[0]!r:.80}, which is no "
                "position; make the split again"
            )
    return [np.array(indices, np.int64) for indices in given]
