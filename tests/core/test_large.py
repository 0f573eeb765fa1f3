"""Many clients: the fast paths give what the plain definitions give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpurin.core import combine, overlap
from fedpurin.core.bits import pack_bits
from fedpurin.core.blocks import BLOCK, block_width, each_block
from fedpurin.core.collaborate import MOST_WORDS, WORD_BYTES, common, counts, products
from fedpurin.core.merge import SPARSE_CLIENTS, GroupSums


def random_masks(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed)) < 0.5


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 2500])
@pytest.mark.parametrize("d", [1, 7, 8, 63, 64, 65, 500])
def test_common_bits_are_counted_exactly(n: int, d: int) -> None:
    masks = random_masks(n, d)
    expected = masks.double() @ masks.double().T
    assert torch.equal(common(pack_bits(masks)).double(), expected)


@pytest.mark.parametrize("count", [counts, products])
def test_bits_may_be_counted_or_multiplied(count: Callable[[np.ndarray], np.ndarray]) -> None:
    masks = random_masks(70, 8 * 129)
    expected = (masks.double() @ masks.double().T).triu().numpy()
    assert np.array_equal(count(pack_bits(masks).numpy()), expected)


@pytest.mark.parametrize("n", [2, 70])
def test_counts_do_not_overflow_where_every_parameter_is_critical(n: int) -> None:
    d = 8 * WORD_BYTES * MOST_WORDS + 11  # more than the widest block
    assert (common(pack_bits(torch.ones(n, d, dtype=torch.bool))) == d).all()


def test_overlap_over_several_blocks_follows_its_definition() -> None:
    masks = random_masks(7, 2 * block_width(7) + 5)
    masks[3] = False
    result = overlap(masks)
    for i in range(7):
        for j in range(7):
            if i == j:
                expected = 1.0
            elif i == 3 or j == 3:
                expected = 0.0
            else:
                expected = 1 - int((masks[i] ^ masks[j]).sum()) / (2 * int(masks[i].sum()))
            assert result[i, j].item() == pytest.approx(expected, abs=1e-12)


def few_collaborators(n: int, each: int) -> Tensor:
    groups = torch.eye(n, dtype=torch.bool)
    for i in range(0, n, 2):  # every second client works alone
        groups[i, torch.randperm(n, generator=torch.Generator().manual_seed(i))[:each]] = True
    return groups


@pytest.mark.parametrize("average", ["paper", "support"])
def test_few_collaborators_are_averaged_as_defined(average: str) -> None:
    n, d = SPARSE_CLIENTS + 16, 3000
    masks, groups = random_masks(n, d), few_collaborators(n, 4)
    values = torch.where(masks, torch.randn(n, d, generator=torch.Generator().manual_seed(1)), 0.0)
    assert GroupSums(groups).matrix is None, "this test is about the path without a matrix product"
    merged = combine(values, masks, groups, None, average)  # type: ignore[arg-type]
    for i in range(n):
        group = values[groups[i]].double()
        divisor = masks[groups[i]].sum(0).clamp(min=1) if average == "support" else len(group)
        everybody = masks.sum(0).clamp(min=1) if average == "support" else n
        expected = torch.where(masks[i], group.sum(0) / divisor, values.double().sum(0) / everybody)
        torch.testing.assert_close(merged[i].double(), expected, rtol=1e-5, atol=1e-6)


def test_a_client_without_collaborators_keeps_its_critical_values_to_the_bit() -> None:
    n, d = SPARSE_CLIENTS + 16, 2000
    masks, groups = random_masks(n, d), few_collaborators(n, 4)
    values = torch.where(masks, torch.randn(n, d, generator=torch.Generator().manual_seed(2)), 0.0)
    merged = combine(values, masks, groups)
    assert torch.equal(merged[1::2][masks[1::2]], values[1::2][masks[1::2]])


def test_the_choice_of_path_changes_rounding_only() -> None:
    groups = few_collaborators(SPARSE_CLIENTS + 16, 4)
    sparse, dense = GroupSums(groups), GroupSums(groups)
    dense.matrix = groups[dense.rows][:, dense.partners].float()
    block = torch.randn(len(groups), 1500, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(sparse(block), dense(block), rtol=1e-5, atol=1e-5)


def test_blocks_come_in_order_and_cover_every_column_once() -> None:
    d = 7 * BLOCK + 11
    assert block_width(1000) == BLOCK
    spans = list(each_block(1000, d, lambda lo, hi: (lo, hi)))
    assert [lo for lo, _ in spans] == list(range(0, d, BLOCK))
    assert [hi for _, hi in spans] == [*range(BLOCK, d, BLOCK), d]
