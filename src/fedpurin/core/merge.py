"""Averages inside groups and over everybody, and the merged model of each client."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from fedpurin.core.bits import all_finite
from fedpurin.core.blocks import Columns, Workspace, as_floats, by_columns, each_block
from fedpurin.core.checks import check_boolean, check_floats, check_groups, check_matrix, check_weights

Average = Literal["paper", "support"]


def combine(
    values: Tensor,
    masks: Tensor,
    groups: Tensor,
    weights: Tensor | None = None,
    average: Average = "paper",
) -> Tensor:
    """Merged models [n, d]: delta_i inside the client's own mask, theta_bar outside it.

    values   [n, d] as uploaded: masked (FedPURIN) or dense (FedCAC)
    masks    bool [n, d]
    groups   bool [n, n], row i: C_i and i itself (see `collaborators`)
    weights  [n] sample counts for theta_bar; equal when None. delta_i is never weighted.
    average  "paper": zeros are averaged in. "support": divide by those who sent the coordinate, which
             no client does outside its mask; one that nobody sent is 0 here and keeps the client's own
             value when it is downloaded.
    """
    _check(values, masks, groups, weights, average)
    merged = values.detach().to(torch.float32, copy=True)  # the type on the wire, whatever is passed here
    if not all_finite(merged):
        raise ValueError("values hold NaN, Inf or numbers beyond float32; leave that client out")
    combine_in_place(merged, lambda lo, hi: masks[:, lo:hi], groups, weights, average)
    if not all_finite(merged):
        raise ValueError("values are so large that their sums are beyond float32; leave that client out")
    return merged.to(values.dtype)


def _check(values: Tensor, masks: Tensor, groups: Tensor, weights: Tensor | None, average: str) -> None:
    check_matrix(values, "values")
    check_floats(values, "values")
    check_matrix(masks, "masks")
    if masks.shape != values.shape:
        raise ValueError(
            f"values and masks must be [n, d] both, not {list(values.shape)} and {list(masks.shape)}"
        )
    check_boolean(masks, "masks")
    check_groups(groups, len(values))
    if weights is not None:
        check_weights(weights, len(values))
    if average not in get_args(Average):
        raise ValueError(f"average = {average!r} is unknown; choose one of {', '.join(get_args(Average))}")


def combine_in_place(
    values: Tensor,
    masks: Columns,
    groups: Tensor,
    weights: Tensor | None = None,
    average: Average = "paper",
) -> tuple[Tensor, Tensor]:
    """`combine` into `values` itself. Returns theta_bar [d] and bool [d]: did anybody send the coordinate?"""
    n, d = values.shape
    share_n = torch.ones(n) if weights is None else weights.to(torch.float32)
    share_n = share_n / share_n.sum()
    groups_of_several = GroupSums(groups)
    several = groups_of_several.rows.tolist()
    theta_bar, sent = torch.empty(d), torch.empty(d, dtype=torch.bool)
    workspace = Workspace()

    def merge(lo: int, hi: int) -> None:
        block = values[:, lo:hi]
        mask = masks(lo, hi)
        if average == "support":
            block.masked_fill_(~mask, 0)  # dense values were not sent, either, where the mask is 0
        bar = share_n @ block
        critical = groups_of_several(block, workspace)
        if average == "support":
            weight = as_floats(mask)
            bar /= (share_n @ weight).clamp_(min=torch.finfo(torch.float32).tiny)
            divisors = groups_of_several(weight).clamp_(min=1)
        else:
            divisors = groups_of_several.sizes_k1
        bar += 0.0  # -0.0 becomes +0.0
        critical += 0.0
        theta_bar[lo:hi] = bar
        sent[lo:hi] = mask.view(torch.uint8).any(0)
        rows = block.unbind(0)
        for row, total, divisor in zip(several, critical.unbind(0), divisors.unbind(0), strict=True):
            torch.div(total, divisor, out=rows[row])  # row by row: index_copy_ is one more pass
        fill_outside(block, mask, bar, workspace)

    for _ in each_block(n, d, merge):
        pass
    return theta_bar, sent


def fill_outside(values: Tensor, mask: Tensor, other: Tensor, workspace: Workspace) -> None:
    """values = where(mask, values, other) in place, on the bits: several times faster than torch.where."""
    inside = workspace.tensor(mask.shape, torch.int32).copy_(mask).neg_()  # all ones or all zeros
    bits, other_bits = values.view(torch.int32), other.view(torch.int32)
    bits.bitwise_xor_(other_bits).bitwise_and_(inside).bitwise_xor_(other_bits)


SPARSE_SHARE = 1 / 4  # of all pairs: below it, adding up members is faster than a matrix product
SPARSE_CLIENTS = 64  # with fewer a matrix product is faster than the calls
SPARSE_COLUMNS = 1024  # so that the rows that are added stay in the cache


class GroupSums:
    """Sums [k, columns] over the members of every group that has more than one; k such groups.

    The cost grows with the number of collaborators where these are few.
    """

    def __init__(self, groups: Tensor) -> None:
        self.rows = torch.nonzero(groups.sum(1) > 1).flatten()  # the clients whose critical part changes
        self.partners = torch.nonzero(groups[self.rows].any(0)).flatten()
        self.everybody = len(self.partners) == groups.shape[0]
        matrix = groups[self.rows][:, self.partners]
        self.sizes_k1 = matrix.sum(1, keepdim=True).to(torch.float32)
        members = torch.nonzero(matrix)
        few = len(members) <= SPARSE_SHARE * matrix.numel() and len(self.partners) >= SPARSE_CLIENTS
        self.members = members[:, 1].contiguous()  # group after group, ascending
        self.first_k = matrix.sum(1).cumsum(0) - matrix.sum(1)
        self.matrix = None if few else matrix.to(torch.float32)

    def __call__(self, block: Tensor, workspace: Workspace | None = None) -> Tensor:
        shape = torch.Size((len(self.rows), block.shape[1]))
        sums = workspace.tensor(shape) if workspace else torch.empty(shape)
        if self.matrix is not None:
            return torch.mm(self.matrix, block if self.everybody else block[self.partners], out=sums)
        for lo in range(0, block.shape[1], SPARSE_COLUMNS):
            part = block[:, lo : lo + SPARSE_COLUMNS]
            part = part.contiguous() if self.everybody else part[self.partners]
            sums[:, lo : lo + SPARSE_COLUMNS] = F.embedding_bag(self.members, part, self.first_k, mode="sum")
        return sums


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """theta_bar [d] of dense models [n, d]."""
    share_n = weights.to(torch.float32)
    share_n = share_n / share_n.sum()
    return by_columns(values, lambda lo, hi: share_n @ values[:, lo:hi]).add_(0.0)
