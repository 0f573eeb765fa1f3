#!/usr/bin/env python3
"""Make the bundled sample of Fashion-MNIST from the official files.

    python scripts/make_bundled.py DATA_DIR

DATA_DIR holds fashion-mnist/ with the four official idx files. The sample is the first 600 training and
the first 150 test images of every class, in the order of the full set. Prints the checksums that belong
into catalog.py.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import sys
from pathlib import Path

import numpy as np

from fedpurin.data import catalog, official

PER_CLASS = {"train": 600, "test": 150}
LIMIT = 4_000_000  # bytes on disk, all files together


def first_of_each_class(y: np.ndarray, count: int) -> np.ndarray:
    """Positions of the first `count` samples of every class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(y == c)[:count] for c in np.unique(y)]))


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def write(path: Path, content: bytes) -> int:
    # no time stamp and no name in the header: the same input gives the same file
    packed = gzip.compress(content, 9, mtime=0)
    path.write_bytes(packed)
    print(f"{path.name}: {len(packed):,} bytes, content {hashlib.sha256(content).hexdigest()}")
    return len(packed)


def main(data_dir: Path) -> None:
    full = official.read(catalog.FASHION_MNIST, data_dir)
    out = Path(catalog.MINI.bundled or ".")
    out.mkdir(exist_ok=True)
    total = 0
    for split, prefix, x, y in (
        ("train", "train", full.train_x, full.train_y),
        ("test", "t10k", full.test_x, full.test_y),
    ):
        rows = first_of_each_class(y, PER_CLASS[split])
        total += write(out / f"{prefix}-images-idx3-ubyte.gz", idx_bytes(x[rows, 0]))
        total += write(out / f"{prefix}-labels-idx1-ubyte.gz", idx_bytes(y[rows].astype(np.uint8)))
    print(f"total {total:,} bytes")
    if total > LIMIT:
        sys.exit(f"the sample must stay below {LIMIT:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
