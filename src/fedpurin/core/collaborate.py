"""Who works with whom: clients whose critical masks overlap."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpurin.core.bits import pack_bits
from fedpurin.core.blocks import each_block
from fedpurin.core.checks import check_boolean, check_matrix, check_overlap

EMPTY = "empty_n"
"""The attribute of an overlap matrix that says who has no critical parameters, bool [n]."""


def overlap(masks: Tensor) -> Tensor:
    """O [n, n]: O_ij = 1 - ||m_i - m_j||_1 / (2 n_i), n_i the number of critical parameters of client i.

    Not symmetric where n_i differ. The diagonal is 1. A client without critical parameters has 0 in
    its row and column; the result remembers who they are, for `collaborators`.
    """
    check_matrix(masks, "masks")
    check_boolean(masks, "masks")
    return overlap_of(pack_bits(masks))


def overlap_of(packed: Tensor) -> Tensor:
    """`overlap` of packed masks, uint8 [n, b], unused bits 0. Memory of one block beside them."""
    common_nn = common(packed).to(torch.float64)
    count_n = common_nn.diagonal().clone()
    distance_nn = count_n[:, None] + count_n[None, :] - 2 * common_nn
    result = 1 - distance_nn / (2 * count_n.clamp(min=1)[:, None])
    empty_n = count_n == 0
    result[empty_n, :] = 0
    result[:, empty_n] = 0
    result.fill_diagonal_(1)
    setattr(result, EMPTY, empty_n)
    return result


WORD_BYTES = 8
CACHED_WORDS = 2**18  # of a block of all clients: 2 MiB
FEWEST_WORDS, MOST_WORDS = 128, 4096  # of one client in a block


MANY = 64  # clients from which a product of bytes is faster than counting, where the processor has one


def common(packed: Tensor) -> Tensor:
    """int64 [n, n]: |m_i and m_j|, the bits that two packed masks share. Whole numbers, so that it does not
    matter how they are counted."""
    n, bytes_in_all = packed.shape
    width = WORD_BYTES * min(MOST_WORDS, max(FEWEST_WORDS, CACHED_WORDS // max(n, 1)))
    count = products if n >= MANY and _multiplies_bytes() else counts
    counts_nn = np.zeros((n, n), dtype=np.int64)
    for part in each_block(n, bytes_in_all, lambda lo, hi: count(packed.numpy()[:, lo:hi]), width):
        counts_nn += part
    above = torch.from_numpy(counts_nn)
    return above + above.triu(1).T


def _multiplies_bytes() -> bool:
    """Elsewhere torch multiplies bytes one by one, if at all."""
    has = getattr(torch.cpu, "_is_vnni_supported", None)
    return hasattr(torch, "_int_mm") and has is not None and bool(has())


def products(packed: np.ndarray) -> np.ndarray:
    """`counts` as a product of two matrices of zeros and ones."""
    bits = torch.from_numpy(np.unpackbits(packed, axis=1)).view(torch.int8)
    return np.triu(torch._int_mm(bits, bits.T).numpy())


def counts(packed: np.ndarray) -> np.ndarray:
    """Counts [n, n] of one block, above the diagonal and on it, 64 bits at a time."""
    n, bytes_used = packed.shape
    words_nw = np.zeros((n, -(-bytes_used // WORD_BYTES)), dtype=np.uint64)
    words_nw.view(np.uint8)[:, :bytes_used] = packed
    counts_nn = np.zeros((n, n), dtype=np.uint32)
    for i in range(n):
        np.bitwise_count(words_nw[i] & words_nw[i:]).sum(axis=1, out=counts_nn[i, i:], dtype=np.uint32)
    return counts_nn


def threshold(overlap: Tensor, t: int, beta: int) -> float:
    """Th = O_avg + t/beta * (O_max - O_avg), mean and maximum over all ordered pairs i != j."""
    check_overlap(overlap, t, beta)
    n = overlap.shape[0]
    if n < 2:
        return float("inf")
    pairs = overlap.to(torch.float64)[~torch.eye(n, dtype=torch.bool)]
    most = pairs.max().item()
    mean = min(pairs.mean().item(), most)  # rounding must not lift the mean of equal overlaps above them
    if t == beta:
        return most
    between = mean + t / beta * (most - mean)
    return min(between, most) if t < beta else between


def collaborators(overlap: Tensor, t: int, beta: int) -> Tensor:
    """bool [n, n]; row i marks C_i = { j != i: O_ij >= Th } and i itself. Nobody collaborates after beta.

    A client that `overlap` found without critical parameters joins no group, even where Th <= 0. In a matrix
    of another origin nobody counts as such.
    """
    limit = threshold(overlap, t, beta)
    n = overlap.shape[0]
    itself = torch.eye(n, dtype=torch.bool)
    if t > beta:
        return itself
    empty_n = getattr(overlap, EMPTY, torch.zeros(n, dtype=torch.bool))
    return ((overlap >= limit) & ~empty_n[:, None] & ~empty_n[None, :]) | itself
