"""A norm bound and a trimmed mean: by hand, against slow twins, and what no bad client can do."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from fedpurin.core.merge import weighted_mean
from fedpurin.core.robust import bound_norms, middle_of, trimmed_mean

robust_settings = settings(
    max_examples=300 if os.environ.get("CI") == "true" else 60, deadline=None, database=None
)
NUMBERS = st.floats(-4, 4, width=32).map(lambda x: x + 0.0) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
TRIMS = st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(15, 100), Fraction(1, 4), Fraction(2, 5)])


@st.composite
def rounds(draw: Any, fewest: int = 1) -> tuple[list[list[float]], list[list[bool]], list[int]]:
    """Values that are 0 where nothing was sent, who sent what, and sample counts."""
    n, d = draw(st.integers(fewest, 7)), draw(st.integers(1, 5))
    bits = st.lists(st.booleans(), min_size=d, max_size=d) | st.just([True] * d)
    sent = draw(st.lists(bits, min_size=n, max_size=n))
    values = [[draw(NUMBERS) if bit else 0.0 for bit in row] for row in sent]
    return values, sent, draw(st.lists(st.integers(1, 500), min_size=n, max_size=n))


# By hand


def test_an_upload_three_times_as_far_out_as_the_median_is_pulled_to_twice() -> None:
    # middle (0, 0); distances 1, 1, 1, 1 and 3: the last may lie at 2
    values = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 3.0]])
    bounded, ratio = bound_norms(values, 2.0)
    assert middle_of(values).tolist() == [0.0, 0.0]
    assert ratio.tolist() == [1.0, 1.0, 1.0, 1.0, 3.0]
    assert bounded.tolist() == [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 2.0]]


def test_a_flipped_model_lies_two_models_away_from_the_middle() -> None:
    # three equal models of length 5 and 0.5 to either side, one flipped: distances 0.5, 0.5, 0, 10
    values = torch.tensor([[3.0, 4.5], [3.0, 3.5], [3.0, 4.0], [-3.0, -4.0]])
    bounded, ratio = bound_norms(values, 1.0)
    assert middle_of(values).tolist() == [3.0, 3.5]  # the lower of the two middle ones
    # from (3, 3.5): 1.0, 0.0, 0.5, sqrt(36 + 56.25) = 9.605; median of those away: 1.0
    torch.testing.assert_close(ratio, torch.tensor([1.0, 0.0, 0.5, 92.25**0.5], dtype=torch.float64))
    torch.testing.assert_close(bounded[3], torch.tensor([3.0, 3.5]) + torch.tensor([-6.0, -7.5]) / 92.25**0.5)


def test_what_a_client_did_not_send_is_no_distance_and_stays_zero() -> None:
    # coordinate 0: everybody sent 1; coordinate 1: only the last, so its distance there is from zero
    values = torch.tensor([[1.0, 0.0], [1.5, 0.0], [0.5, 0.0], [1.0, 40.0]])
    sent = torch.tensor([[True, False], [True, False], [True, False], [True, True]])
    bounded, ratio = bound_norms(values, 2.0, sent)
    assert ratio.tolist() == [0.0, 1.0, 1.0, 80.0]
    assert bounded.tolist() == [[1.0, 0.0], [1.5, 0.0], [0.5, 0.0], [1.0, 1.0]]


def test_updates_are_measured_from_zero() -> None:
    values = torch.tensor([[1.0], [1.0], [1.0], [1000.0]])
    bounded, ratio = bound_norms(values, 3.0, updates=True)
    assert ratio.tolist() == [1.0, 1.0, 1.0, 1000.0]
    assert bounded.tolist() == [[1.0], [1.0], [1.0], [3.0]]


def test_a_trimmed_mean_leaves_out_the_smallest_and_the_largest() -> None:
    values = torch.tensor([[-1000.0], [1.0], [2.0], [3.0], [1000.0]])
    assert trimmed_mean(values, torch.ones(5), 0.2).tolist() == [2.0]
    assert trimmed_mean(values, torch.ones(5), 0.4).tolist() == [2.0]
    # weights 1, 3 and 2 of those that stay: (1 + 6 + 6) / 6
    mean = trimmed_mean(values, torch.tensor([9, 1, 3, 2, 9]), 0.2)
    assert mean.item() == pytest.approx(13 / 6, rel=1e-6)


def test_where_few_sent_a_coordinate_as_many_are_left_out_down_to_their_median() -> None:
    # of 10 clients 3 may be bad; coordinate 0 was sent by three: their median 2, times 3 of 10 senders
    values, sent = torch.zeros(10, 2), torch.zeros(10, 2, dtype=torch.bool)
    values[:3, 0] = torch.tensor([1.0, 2.0, 1000.0])
    values[:2, 1] = torch.tensor([1.0, 3.0])  # two: nobody can be left out; their mean 2, times 2 of 10
    sent[:3, 0] = sent[:2, 1] = True
    torch.testing.assert_close(trimmed_mean(values, torch.ones(10), 0.3, sent), torch.tensor([0.6, 0.4]))


def test_a_share_that_is_a_whole_number_of_clients_is_taken_as_such() -> None:
    """0.15 * 20 is 3, although the nearest floats give a little less."""
    values = torch.cat([torch.zeros(17), torch.full((3,), 1000.0)])[:, None]
    assert trimmed_mean(values, torch.ones(20), 0.15).tolist() == [0.0]


# Against the twins


@robust_settings
@given(rounds(), st.sampled_from([1.0, 1.5, 3.0]), st.booleans())
def test_bounded_uploads_are_those_of_the_twin(case: Any, bound: float, updates: bool) -> None:
    values, sent, _ = case
    given_values = torch.tensor(values)
    bounded, ratio = bound_norms(given_values, bound, torch.tensor(sent), updates=updates)
    expected, expected_ratio = reference.bound_norms(values, bound, sent, updates)
    torch.testing.assert_close(ratio, torch.tensor(expected_ratio, dtype=torch.float64), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(bounded, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert torch.equal(given_values, torch.tensor(values)), "the input was changed"


@robust_settings
@given(rounds(), TRIMS)
def test_trimmed_means_are_those_of_the_twin(case: Any, trim: Fraction) -> None:
    values, sent, weights = case
    found = trimmed_mean(torch.tensor(values), torch.tensor(weights), float(trim), torch.tensor(sent))
    expected = torch.tensor(reference.trimmed_mean(values, weights, trim, sent))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not (found.signbit() & (found == 0)).any(), "a mean is -0.0"


# What holds for all


@robust_settings
@given(rounds())
def test_without_trimming_it_is_the_weighted_mean(case: Any) -> None:
    values, sent, weights = torch.tensor(case[0]), torch.tensor(case[1]), torch.tensor(case[2])
    torch.testing.assert_close(
        trimmed_mean(values, weights, 0.0, sent), weighted_mean(values, weights), rtol=1e-5, atol=1e-6
    )


@robust_settings
@given(rounds(fewest=5), st.integers(0, 6), st.floats(-(2.0**100), 2.0**100, width=32), st.randoms())
def test_one_bad_client_of_five_leaves_a_trimmed_mean_within_the_honest_values(
    case: Any, at: int, lie: float, random: Any
) -> None:
    honest = torch.tensor(case[0])
    n = len(honest)
    at %= n
    lies = honest.clone()
    lies[at] = lie * torch.tensor([random.uniform(-1, 1) for _ in range(honest.shape[1])])
    mean = trimmed_mean(lies, torch.tensor(case[2]), 0.2)
    others = honest[[i for i in range(n) if i != at]]
    tolerance = 1e-5
    assert (mean >= others.min(0).values - tolerance).all()
    assert (mean <= others.max(0).values + tolerance).all()


@robust_settings
@given(rounds(fewest=3), st.sampled_from([1.0, 2.0, 5.0]), st.booleans())
def test_nobody_lies_further_out_than_the_bound_and_those_within_keep_their_bits(
    case: Any, bound: float, updates: bool
) -> None:
    values, sent = torch.tensor(case[0]), torch.tensor(case[1])
    bounded, ratio = bound_norms(values, bound, sent, updates=updates)
    within = ratio <= bound
    assert torch.equal(bounded[within], values[within])
    middle = torch.zeros(values.shape[1]) if updates else middle_of(values, sent)

    def distance(rows: torch.Tensor) -> torch.Tensor:
        return (rows - middle).masked_fill(~sent, 0).double().norm(dim=1)

    away = distance(values)[distance(values) > 0]
    limit = bound * away.median() if len(away) else 0.0
    assert (distance(bounded) <= limit * (1 + 1e-5) + 1e-6).all()
    assert (bounded[~sent] == 0).all()


@robust_settings
@given(rounds(fewest=2), TRIMS, st.randoms())
def test_the_order_of_clients_does_not_matter(case: Any, trim: Fraction, random: Any) -> None:
    values, sent, weights = torch.tensor(case[0]), torch.tensor(case[1]), torch.full((len(case[2]),), 7)
    order = list(range(len(values)))
    random.shuffle(order)
    mean, again = (
        trimmed_mean(values[rows], weights[rows], float(trim), sent[rows])
        for rows in (list(range(len(values))), order)
    )
    torch.testing.assert_close(mean, again, rtol=1e-5, atol=1e-6)
    bounded, _ = bound_norms(values, 1.5, sent)
    again, _ = bound_norms(values[order], 1.5, sent[order])
    torch.testing.assert_close(bounded[order], again, rtol=1e-5, atol=1e-6)
