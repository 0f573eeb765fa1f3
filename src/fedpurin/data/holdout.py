"""Validation samples: a share of one client's training samples that it does not train on."""

from __future__ import annotations

import numpy as np

from fedpurin.errors import DataError


def hold_out(
    indices: np.ndarray, share: float, rank: np.ndarray, client: int
) -> tuple[np.ndarray, np.ndarray]:
    """A client's positions in the data set, divided into those it trains on and those it holds out.

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
