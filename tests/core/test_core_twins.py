"""`fedpurin.core` against the slow twins of tests/reference.py, on small cases that hypothesis looks for."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from fedpurin.core import collaborators, combine, critical_mask, overlap, perturbation, threshold
from fedpurin.core.masks import largest

EXAMPLES = 300 if os.environ.get("CI") == "true" else 50
core_settings = settings(max_examples=EXAMPLES, deadline=None, database=None)

FLOAT32_EPS = 2.0**-23
NUMBERS = st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
# Ties, zeros, and values on either side of the two limits that masks know (1e-10 and 1e-20)
SCORES = st.sampled_from([0.0, 1e-21, 1e-20, 3e-20, 1e-11, 1e-10, 2e-10, 0.5, 0.5, 1.0]) | st.floats(
    0, 2, width=32
)


@st.composite
def matrices(draw: Any, elements: st.SearchStrategy[Any], rows: int = 4, columns: int = 7) -> list[list[Any]]:
    n, d = draw(st.integers(1, rows)), draw(st.integers(1, columns))
    return draw(st.lists(st.lists(elements, min_size=d, max_size=d), min_size=n, max_size=n))  # type: ignore[no-any-return]


@st.composite
def layered_scores(draw: Any) -> tuple[list[list[float]], list[int]]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    layers = [st.lists(SCORES, min_size=size, max_size=size) | st.just([0.0] * size) for size in sizes]
    row = st.tuples(*layers).map(lambda parts: [s for part in parts for s in part])
    return draw(st.lists(row, min_size=1, max_size=3)), sizes


@st.composite
def uploads(draw: Any) -> tuple[list[list[float]], list[list[bool]], list[float] | None]:
    masks = draw(matrices(st.booleans(), rows=5))
    n, d = len(masks), len(masks[0])
    values = draw(st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=n, max_size=n))
    weights = draw(st.none() | st.lists(st.integers(1, 500), min_size=n, max_size=n))
    return values, masks, weights


def close_to(found: Tensor, expected: list[list[float]], scale: float) -> None:
    """Equal up to the rounding of a float32 sum of a handful of terms, each at most `scale`."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=8 * FLOAT32_EPS * max(scale, 1e-30))


@core_settings
@given(matrices(st.tuples(NUMBERS, NUMBERS)), st.booleans())
def test_scores_are_the_formula(pairs: list[list[tuple[float, float]]], hessian: bool) -> None:
    gradient, weights = (torch.tensor([[p[k] for p in row] for row in pairs]) for k in (0, 1))
    found = perturbation(gradient, weights, hessian=hessian)
    expected = [reference.perturbation([p[0] for p in row], [p[1] for p in row], hessian) for row in pairs]
    close_to(found, expected, scale=16 + 128)  # |g theta| <= 16 and half its square
    assert (found >= 0).all()


@core_settings
@given(
    layered_scores(),
    st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.99, 1.0]),
    st.sampled_from([None, 1e-20]),
)
def test_masks_are_identical(
    case: tuple[list[list[float]], list[int]], tau: float, fallback: float | None
) -> None:
    rows, sizes = case
    scores = torch.tensor(rows)
    found = critical_mask(scores, sizes, tau, fallback=fallback)
    assert found.dtype == torch.bool
    expected = [reference.critical_mask(row, sizes, tau, fallback=fallback) for row in scores.tolist()]
    assert found.tolist() == expected


@core_settings
@given(matrices(st.booleans(), rows=6, columns=9))
def test_overlaps_are_exact_to_float64(masks: list[list[bool]]) -> None:
    found = overlap(torch.tensor(masks))
    expected = [[float(o) for o in row] for row in reference.overlap(masks)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)


@core_settings
@given(matrices(st.booleans(), rows=6, columns=9), st.integers(1, 8), st.integers(1, 6))
def test_groups_are_those_at_least_at_the_threshold(masks: list[list[bool]], t: int, beta: int) -> None:
    o = overlap(torch.tensor(masks))
    exact = reference.overlap(masks)
    limit = reference.threshold(exact, t, beta)
    assert threshold(o, t, beta) == pytest.approx(float(limit), abs=1e-12)
    found = collaborators(o, t, beta)
    most = max((exact[i][j] for i in range(len(masks)) for j in range(len(masks)) if i != j), default=0)
    for i, group in enumerate(reference.collaborators(masks, t, beta)):
        for j in range(len(masks)):
            # Where an overlap other than the largest meets the threshold to the last digit, rounding may
            # decide either way; the largest must always belong.
            if exact[i][j] != most and i != j and abs(exact[i][j] - limit) < 1e-12:
                continue
            assert found[i, j].item() == (j in group), (i, j, exact, limit)


@core_settings
@given(uploads(), st.integers(1, 4), st.sampled_from(["paper", "support"]))
def test_merged_sparse_models(
    case: tuple[list[list[float]], list[list[bool]], list[float] | None], t: int, average: str
) -> None:
    values, masks, weights = case
    sparse = [
        [v if m else 0.0 for v, m in zip(*rows, strict=True)] for rows in zip(values, masks, strict=True)
    ]
    check_combine(sparse, masks, weights, t, average)


@core_settings
@given(uploads(), st.integers(1, 4), st.sampled_from(["paper", "support"]))
def test_merged_dense_models(
    case: tuple[list[list[float]], list[list[bool]], list[float] | None], t: int, average: str
) -> None:
    check_combine(*case, t, average)


def check_combine(
    values: list[list[float]], masks: list[list[bool]], weights: list[float] | None, t: int, average: Any
) -> None:
    groups = reference.collaborators(masks, t, beta=3)
    groups_nn = torch.tensor([[j in group for j in range(len(masks))] for group in groups])
    before = torch.tensor(values)
    given_values = before.clone()
    weights_n = None if weights is None else torch.tensor(weights)
    found = combine(given_values, torch.tensor(masks), groups_nn, weights_n, average)
    close_to(found, reference.combine(values, masks, groups, weights, average), scale=4)
    assert torch.equal(given_values, before), "combine changed its input"
    outside = found[~torch.tensor(masks)]
    assert not (outside.signbit() & (outside == 0)).any(), "a mean is -0.0"


@st.composite
def layered_updates(draw: Any) -> tuple[list[list[float]], list[int]]:
    """Numbers of both signs, with ties and zeros; layers may be empty, or all zero."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    layers = [st.lists(NUMBERS, min_size=size, max_size=size) | st.just([0.0] * size) for size in sizes]
    row = st.tuples(*layers).map(lambda parts: [v for part in parts for v in part])
    return draw(st.lists(row, min_size=1, max_size=3)), sizes


@core_settings
@given(layered_updates(), st.floats(0.01, 1) | st.sampled_from([0.5, 1.0]))
def test_the_largest_are_as_many_as_the_share_and_none_is_smaller_than_one_left_out(
    case: tuple[list[list[float]], list[int]], share: float
) -> None:
    """Which of equal ones is free, so the twin says how many there are and how small they may be."""
    rows, sizes = case
    values = torch.tensor(rows, dtype=torch.float32).view(len(rows), sum(sizes))
    before = values.clone()
    mask = largest(values, sizes, share)
    assert torch.equal(values, before)
    for row, chosen in zip(rows, mask.tolist(), strict=True):
        start = 0
        for size, (limit, count) in zip(sizes, reference.largest(row, sizes, share), strict=True):
            layer, picked = row[start : start + size], chosen[start : start + size]
            assert sum(picked) == count
            assert all(abs(v) >= limit and v != 0 for v, sent in zip(layer, picked, strict=True) if sent)
            assert all(abs(v) <= limit for v, sent in zip(layer, picked, strict=True) if not sent)
            start += size


def test_largest_refuses_sizes_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="must be"):
        largest(torch.zeros(2, 5), [2, 2], 0.5)
    with pytest.raises(ValueError, match="must be"):
        largest(torch.zeros(4), [2, 2], 0.5)
