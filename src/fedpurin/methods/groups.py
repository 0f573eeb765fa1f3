"""What FedCAC and FedPURIN share: sound scores, groups by overlap, critical means, global mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpurin.core.bits import BITS_PER_BYTE, pack_bits, unpack_bits
from fedpurin.core.checks import has_nan
from fedpurin.core.collaborate import collaborators, overlap_of, threshold
from fedpurin.core.merge import Average, combine_in_place
from fedpurin.errors import DivergedError
from fedpurin.messages import Uploads
from fedpurin.methods.state import ServerState

OVERLAP_LIMIT = 64  # participants up to which the overlap matrix goes into the metrics


@dataclass(frozen=True)
class Groups(ServerState):
    """All None before the first aggregation. The merged critical part of a client that worked with others is
    kept until it asks for its reply (`Known.kept`); that of one that worked alone is its own."""

    theta_bar: Tensor | None = None  # [d]: the global mean
    sent: Tensor | None = None  # uint8 [b]: where anybody sent a value
    overlap: Tensor | None = None  # [n, n] of the last round's participants
    groups: Tensor | None = None  # bool [n, n]
    threshold: Tensor | None = None  # [1]

    def tensors(self) -> dict[str, Tensor]:
        kept = super().tensors()
        for name in ("overlap", "groups", "threshold"):  # said in the round's record, then of no more use
            kept.pop(name, None)
        return kept

    def support(self) -> Tensor | None:
        return None if self.theta_bar is None else self.theta_bar != 0

    @classmethod
    def kept_before(cls, tensors: Mapping[str, Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Version 0.1 had `merged` [N, d] and `alone`, bool [N]."""
        if "merged" in tensors:
            for client in torch.nonzero(~tensors["alone"]).flatten().tolist():
                yield client, tensors["merged"][client]


def sound(scores_nd: Tensor) -> Tensor:
    """Scores of which a share can be the best. The weights may still be numbers where a gradient, or its
    product with them, is none."""
    if has_nan(scores_nd):
        raise DivergedError("the scores of the parameters are NaN: its training diverges; lower train.lr")
    return scores_nd


def merge_groups(uploads: Uploads, t: int, beta: int, average: Average) -> Groups:
    """theta_bar; keeps the merged models of those participants that are in a group of several."""
    assert uploads.packed_nb is not None
    packed_nb = uploads.packed_nb

    def masks(lo: int, hi: int) -> Tensor:  # blocks start at whole bytes
        return unpack_bits(packed_nb[:, lo // BITS_PER_BYTE : -(-hi // BITS_PER_BYTE)], hi - lo)

    overlap_nn = overlap_of(packed_nb)
    groups_nn = collaborators(overlap_nn, t, beta)
    theta_bar, sent = combine_in_place(uploads.values_nd, masks, groups_nn, uploads.samples_n, average)
    uploads.keep(groups_nn.sum(1) > 1)
    return Groups(
        theta_bar=theta_bar,
        sent=pack_bits(sent),
        overlap=overlap_nn,
        groups=groups_nn,
        threshold=torch.tensor([threshold(overlap_nn, t, beta)], dtype=torch.float64),
    )


def describe_groups(state: Groups, uploads: Uploads) -> dict[str, Any]:
    """For the record: who worked with whom, how far masks agree, how much of each layer is critical."""
    assert state.groups is not None
    assert state.overlap is not None
    assert state.threshold is not None
    clients = uploads.clients
    collaborators_of = [
        [clients[j] for j in torch.nonzero(row).flatten().tolist() if j != i]
        for i, row in enumerate(state.groups)
    ]
    limit = float(state.threshold)
    record: dict[str, Any] = {
        "collaborators": collaborators_of,
        "threshold": limit if limit != float("inf") else None,
    }
    if len(clients) <= OVERLAP_LIMIT:
        record["overlap"] = [[round(o, 4) + 0.0 for o in row] for row in state.overlap.tolist()]
    return record | {"kept": kept_shares(uploads)}


def kept_shares(uploads: Uploads) -> dict[str, float]:
    """Share of critical parameters per layer, mean over the clients."""
    assert uploads.packed_nb is not None
    selection = uploads.selection
    counts = [0] * len(selection.layers)
    for packed in uploads.packed_nb:
        mask = unpack_bits(packed, selection.d).numpy()  # which counts a hundred times faster than torch
        for i, (layer, at) in enumerate(selection.spans()):
            counts[i] += int(np.count_nonzero(mask[at : at + layer.size]))
    n = len(uploads.clients)
    return {
        layer.name: count / (layer.size * n) for layer, count in zip(selection.layers, counts, strict=True)
    }
