"""What the ridge plots show."""

from __future__ import annotations

import numpy as np
import pytest

from fedpurin.reproduce.coverage_figures import BINS, density


@pytest.mark.parametrize("rounds", [1, 12, 23, 24, 60, 61, 300])
def test_equal_counts_give_a_level_ridge(rounds: int) -> None:
    """Also where the possible counts do not divide evenly among the bins."""
    x, heights = density([7] * (rounds + 1), rounds)
    assert len(x) == min(BINS, rounds + 1)
    np.testing.assert_allclose(heights, 1 / len(x))
    assert (np.diff(x) > 0).all()
    assert x[0] >= 0
    assert x[-1] <= 1


def test_a_parameter_is_counted_where_it_belongs() -> None:
    never, always = [9, *[0] * 60], [*[0] * 60, 9]
    assert density(never, 60)[1].argmax() == 0
    assert density(always, 60)[1].argmax() == BINS - 1
    x, heights = density([0, 2, 1], 2)
    np.testing.assert_allclose(x, [0, 0.5, 1])
    np.testing.assert_allclose(heights, [0, 2 / 3, 1 / 3])
