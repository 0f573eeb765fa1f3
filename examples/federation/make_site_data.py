"""Writes data for three sites that see different things: python make_site_data.py FOLDER

site-a.npz holds mostly clothes for the upper body, site-b.npz mostly shoes, bags and trousers, site-c.npz
some of everything: it is for a site that joins later. All come from the data set in fedpurin, and no two have
a sample in common. A real site writes a file of this form from its own records: arrays x_train, y_train,
x_test, y_test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedpurin import data

CLASSES_OF_A = (0, 2, 3, 4, 6)  # T-shirt, pullover, dress, coat, shirt
SHARE_OF_OTHERS = 10  # one in so many samples of the other classes goes to this site, too
SHARE_OF_C = 4


def divide(y: np.ndarray) -> list[np.ndarray]:
    """The samples of each site: its own classes and a few of the other's."""
    number = np.arange(len(y))
    to_c = number % SHARE_OF_C == 1
    to_a = np.isin(y, CLASSES_OF_A) ^ (number % SHARE_OF_OTHERS == 0)
    return [np.flatnonzero(to_a & ~to_c), np.flatnonzero(~to_a & ~to_c), np.flatnonzero(to_c)]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = data.load("fashion-mnist-mini")
    train, test = divide(whole.train_y.numpy()), divide(whole.test_y.numpy())
    for name, train_index, test_index in zip(("site-a", "site-b", "site-c"), train, test, strict=True):
        np.savez(
            folder / f"{name}.npz",
            x_train=whole.train_x.numpy()[train_index],
            y_train=whole.train_y.numpy()[train_index],
            x_test=whole.test_x.numpy()[test_index],
            y_test=whole.test_y.numpy()[test_index],
        )
        print(f"{folder / name}.npz: {len(train_index)} training and {len(test_index)} test samples")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
