"""The server's part that FedCAC and FedPURIN share: groups by overlap, critical means, global mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.core.bits import BITS_PER_BYTE, pack_bits, unpack_bits
from fedpurin.core.collaborate import collaborators, overlap_of, threshold
from fedpurin.core.merge import Average, combine_in_place
from fedpurin.messages import Uploads
from fedpurin.methods.base import Server


def merge_groups(server: Server, uploads: Uploads, t: int, beta: int, average: Average) -> Server:
    """Merged models of the participants, theta_bar and masks, kept until each client asks for its reply.

    merged [N, d]: the critical part of each client as last merged, at its critical positions
    mask [N, b]: its last accepted mask; alone [N]: nobody collaborated, so its critical part is its own
    """
    assert uploads.packed_nb is not None
    packed_nb = uploads.packed_nb

    def masks(lo: int, hi: int) -> Tensor:  # blocks start at whole bytes
        return unpack_bits(packed_nb[:, lo // BITS_PER_BYTE : -(-hi // BITS_PER_BYTE)], hi - lo)

    overlap_nn = overlap_of(packed_nb)
    groups_nn = collaborators(overlap_nn, t, beta)
    theta_bar, sent = combine_in_place(uploads.values_nd, masks, groups_nn, uploads.samples_n, average)
    rows = torch.tensor(uploads.clients)
    clients = len(server["confirmed"])
    alone_n = groups_nn.sum(1) == 1
    return server | {
        "theta_bar": theta_bar,
        "sent": pack_bits(sent),
        "merged": _replace_rows(server.get("merged"), rows, uploads.values_nd, clients),
        "mask": _replace_rows(server.get("mask"), rows, packed_nb, clients),
        "alone": _replace_rows(server.get("alone"), rows, alone_n, clients),
        "overlap": overlap_nn,
        "groups": groups_nn,
        "threshold": torch.tensor([threshold(overlap_nn, t, beta)], dtype=torch.float64),
    }


def _replace_rows(table: Tensor | None, rows: Tensor, new: Tensor, clients: int) -> Tensor:
    if len(rows) == clients:
        return new  # everybody took part: no second matrix
    if table is None:
        table = torch.zeros((clients, *new.shape[1:]), dtype=new.dtype)
    table[rows] = new
    return table
