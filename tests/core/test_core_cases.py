"""`fedpurin.core` on cases small enough to be worked out by hand; the working is in the comments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fedpurin.core
from fedpurin.core import collaborators, combine, critical_mask, overlap, perturbation, threshold


def bits(*rows: str) -> Tensor:
    """bool [n, d] from strings of 0 and 1."""
    return torch.tensor([[c == "1" for c in row] for row in rows])


def test_exactly_these_names_are_public() -> None:
    expected = {"collaborators", "combine", "critical_mask", "overlap", "perturbation", "threshold"}
    assert set(fedpurin.core.__all__) == expected


# Scores


def test_score_without_and_with_the_quadratic_term() -> None:
    g, theta = torch.tensor([[2.0, -1.0, 0.5, 0.0]]), torch.tensor([[1.0, 3.0, 4.0, 9.0]])
    # g * theta = 2, -3, 2, 0
    assert perturbation(g, theta).tolist() == [[2.0, 3.0, 2.0, 0.0]]
    # |-2 + 4/2| = 0;  |3 + 9/2| = 7.5;  |-2 + 2| = 0;  0
    assert perturbation(g, theta, hessian=True).tolist() == [[0.0, 7.5, 0.0, 0.0]]


def test_scores_leave_their_inputs_alone() -> None:
    g, theta = torch.tensor([[-2.0]]), torch.tensor([[3.0]])
    perturbation(g, theta)
    perturbation(g, theta, hessian=True)
    assert (g.item(), theta.item()) == (-2.0, 3.0)


# Masks


def test_the_best_share_of_each_layer_apart() -> None:
    # layer 1 (4): k = int(0.5 * 4) = 2, 2nd largest 3 -> 3 and 4; layer 2 (3): k = int(1.5) = 1 -> 0.3
    mask = critical_mask(torch.tensor([[1.0, 4.0, 3.0, 2.0, 0.1, 0.3, 0.2]]), [4, 3], 0.5)
    assert torch.equal(mask, bits("0110010"))


def test_ties_at_the_threshold_are_all_critical() -> None:
    # k = 1, largest 2, twice there
    assert torch.equal(critical_mask(torch.tensor([[2.0, 1.0, 2.0]]), [3], 0.34), bits("101"))


def test_a_layer_too_small_for_the_share_has_no_critical_parameter() -> None:
    # int(0.5 * 1) = 0: a single bias is never critical at tau = 0.5
    assert torch.equal(critical_mask(torch.tensor([[5.0, 3.0, 4.0]]), [1, 2], 0.5), bits("001"))


def test_a_low_threshold_gives_way_to_the_floor() -> None:
    # k = 3, 3rd largest 0 <= 1e-10: only scores above 1e-10, fewer than k
    assert torch.equal(critical_mask(torch.tensor([[1.0, 1e-9, 1e-11, 0.0]]), [4], 0.75), bits("1100"))


def test_a_threshold_below_the_floor_can_also_select_less_than_the_ties() -> None:
    # k = 2, 2nd largest 5e-11 <= 1e-10, yet 1.0 lies above: 5e-11 itself is out
    assert torch.equal(critical_mask(torch.tensor([[1.0, 5e-11, 0.0, 0.0]]), [4], 0.5), bits("1000"))


def test_fedcac_falls_back_to_a_lower_limit() -> None:
    # k = 3, 3rd largest 1e-15 <= 1e-10: all above 1e-20, which is more than k
    scores = torch.tensor([[1.0, 1e-15, 1e-15, 1e-19, 1e-21, 0.0]])
    assert torch.equal(critical_mask(scores, [6], 0.5, fallback=1e-20), bits("111100"))
    assert torch.equal(critical_mask(scores, [6], 0.5), bits("100000"))


def test_a_layer_without_any_score_is_wholly_critical() -> None:
    # 2nd largest is 0, nothing above the floor: score >= 0 holds everywhere
    assert torch.equal(critical_mask(torch.zeros(1, 4), [4], 0.5), bits("1111"))


def test_a_layer_of_scores_below_the_floor_keeps_the_plain_rule() -> None:
    # nothing above 1e-10; 2nd largest 2e-11: score >= 2e-11
    assert torch.equal(critical_mask(torch.tensor([[3e-11, 2e-11, 1e-11, 0.0]]), [4], 0.5), bits("1100"))


def test_the_rules_of_one_client_do_not_reach_another() -> None:
    scores = torch.tensor([[0.0, 0.0], [2.0, 1.0], [1.0, 0.0]])
    assert torch.equal(critical_mask(scores, [2], 0.5), bits("11", "10", "10"))


# Overlap, threshold, groups


def test_overlap_counts_from_the_row_client() -> None:
    # n = 3, 1; they differ at 2 places: 1 - 2/6 and 1 - 2/2
    found = overlap(bits("1110", "1000"))
    torch.testing.assert_close(found, torch.tensor([[1, 2 / 3], [0, 1]], dtype=torch.float64))


def test_overlap_can_be_negative() -> None:
    # nothing in common, n = 1 and 3, differing at 4 places: 1 - 4/2 = -1 and 1 - 4/6 = 1/3
    found = overlap(bits("1000", "0111"))
    torch.testing.assert_close(found, torch.tensor([[1, -1], [1 / 3, 1]], dtype=torch.float64))


def test_an_empty_mask_overlaps_with_nobody() -> None:
    assert overlap(bits("000", "110", "110")).tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]


THREE = torch.tensor([[1.0, 0.8, 0.2], [0.6, 1.0, 0.4], [0.1, 0.3, 1.0]])
# Ordered pairs .8 .2 .6 .4 .1 .3: mean 0.4, largest 0.8


def test_the_threshold_goes_from_the_mean_to_the_largest_overlap() -> None:
    # 0.4 + 1/4 * 0.4 = 0.5;  0.4 + 3/4 * 0.4 = 0.7;  at beta 0.8;  beyond it 0.4 + 6/4 * 0.4 = 1
    found = [threshold(THREE, t, beta=4) for t in (1, 3, 4, 6)]
    assert found == pytest.approx([0.5, 0.7, 0.8, 1.0], abs=1e-7)


def test_groups_shrink_with_the_rounds() -> None:
    assert torch.equal(collaborators(THREE, 1, 4), bits("110", "110", "001"))  # .8 and .6 reach 0.5
    assert torch.equal(collaborators(THREE, 3, 4), bits("110", "010", "001"))  # .8 alone reaches 0.7
    assert torch.equal(collaborators(THREE, 4, 4), bits("110", "010", "001"))  # the largest, exactly
    assert torch.equal(collaborators(THREE, 5, 4), bits("100", "010", "001"))  # nobody after beta


@pytest.mark.parametrize("t", [1, 2, 3, 7])
def test_equal_overlaps_are_all_at_the_threshold_until_beta(t: int) -> None:
    # 0.1 has no exact binary form: a mean of six of them must not come out above them
    equal = torch.full((3, 3), 0.1, dtype=torch.float64).fill_diagonal_(1)
    assert collaborators(equal, t, 7).all()
    assert torch.equal(collaborators(equal, 8, 7), torch.eye(3, dtype=torch.bool))


def test_masks_with_nothing_in_common_still_meet_a_threshold_of_zero() -> None:
    # n = 2 each, differing at 4 places: O = 1 - 4/4 = 0 both ways, so Th = 0 and O >= Th
    assert collaborators(overlap(bits("1100", "0011")), 1, 5).all()


def test_an_empty_mask_joins_no_group_even_at_a_threshold_of_zero() -> None:
    apart = torch.eye(3, dtype=torch.bool)
    assert torch.equal(collaborators(overlap(bits("000", "000", "000")), 1, 5), apart)
    # O = 0 in all pairs, Th = 0: the two disjoint masks meet it, the empty one stays away
    assert torch.equal(collaborators(overlap(bits("1100", "0011", "0000")), 1, 5), bits("110", "110", "001"))


def test_an_empty_mask_joins_no_group_below_a_threshold_of_zero() -> None:
    # O = -1 and 1/3 between the first two and 0 in four pairs: Th = -1/9 + 1/5 * 4/9 = -1/45, which 0 meets
    o = overlap(bits("1000", "0111", "0000"))
    assert threshold(o, 1, 5) == pytest.approx(-1 / 45)
    assert torch.equal(collaborators(o, 1, 5), bits("100", "110", "001"))


def test_an_overlap_of_zero_is_a_plain_zero() -> None:
    o = overlap(bits("0000", "1100", "0011"))
    assert o.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert not o.signbit().any()


def test_one_client_is_its_own_group() -> None:
    alone = overlap(bits("101"))
    assert alone.tolist() == [[1.0]]
    assert threshold(alone, 1, 5) == float("inf")
    assert collaborators(alone, 1, 5).tolist() == [[True]]


# Merging

VALUES = torch.tensor([[4.0, 2.0, 0.0, 0.0], [0.0, 6.0, 8.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
MASKS = bits("1100", "0110", "1000")
GROUPS = bits("110", "010", "101")


def test_zeros_of_others_are_averaged_in() -> None:
    # theta_bar, equal weights: (5, 8, 8, 0) / 3
    # client 0 with 1: (4+0)/2, (2+6)/2; outside 8/3, 0
    # client 1 alone: 6, 8; outside 5/3, 0      client 2 with 0: (1+4)/2; outside 8/3, 8/3, 0
    expected = torch.tensor([[2, 4, 8 / 3, 0], [5 / 3, 6, 8, 0], [2.5, 8 / 3, 8 / 3, 0]])
    torch.testing.assert_close(combine(VALUES, MASKS, GROUPS), expected)


def test_sample_counts_weigh_the_global_part_only() -> None:
    # weights 1, 1, 2: theta_bar = (4 + 2*1, 2+6, 8, 0) / 4 = 1.5, 2, 2, 0; critical parts as above
    expected = torch.tensor([[2, 4, 2, 0], [1.5, 6, 8, 0], [2.5, 2, 2, 0]])
    torch.testing.assert_close(combine(VALUES, MASKS, GROUPS, torch.tensor([1, 1, 2])), expected)


def test_support_divides_by_those_who_sent_the_coordinate() -> None:
    # theta_bar: coordinate 0 from clients 0, 2: 2.5; 1 from 0, 1: 4; 2 from 1: 8; 3 from nobody: 0
    # client 0 with 1: 4/1 (1 did not send it), 8/2; client 2 with 0: 5/2
    expected = torch.tensor([[4.0, 4, 8, 0], [2.5, 6, 8, 0], [2.5, 4, 8, 0]])
    torch.testing.assert_close(combine(VALUES, MASKS, GROUPS, average="support"), expected)


def test_support_with_sample_counts() -> None:
    # weights 1, 3, 2: coordinate 0: (4 + 2*1) / 3 = 2; 1: (2 + 3*6) / 4 = 5; 2: 8
    merged = combine(VALUES, MASKS, GROUPS, torch.tensor([1, 3, 2]), "support")
    torch.testing.assert_close(merged, torch.tensor([[4.0, 4, 8, 0], [2, 6, 8, 0], [2.5, 5, 8, 0]]))


def test_dense_values_are_averaged_whole() -> None:
    # both in one group: critical means (1+3)/2 = 2; theta_bar with weights 3, 1: (3*2+6)/4 = 3
    values, masks = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), bits("10", "10")
    merged = combine(values, masks, bits("11", "11"), torch.tensor([3, 1]))
    assert merged.tolist() == [[2.0, 3.0], [2.0, 3.0]]


def test_support_leaves_out_what_a_dense_model_has_outside_its_mask() -> None:
    # coordinate 0 counts as sent by client 0 alone, 1 by client 1 alone
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    merged = combine(values, bits("10", "01"), bits("10", "01"), average="support")
    assert merged.tolist() == [[1.0, 4.0], [1.0, 4.0]]


def test_double_precision_comes_back_as_double() -> None:
    assert torch.equal(combine(VALUES.double(), MASKS, GROUPS), combine(VALUES, MASKS, GROUPS).double())


# Wrong shapes and values are refused, not broadcast

ROW, EYE = torch.ones(1, 3), torch.eye(2, dtype=torch.bool)
TWO, ALL = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: perturbation(ROW, TWO), r"\[1, 3\].*\[2, 3\]"),
        (lambda: critical_mask(torch.ones(3), [3], 0.5), r"\[3\]"),
        (lambda: critical_mask(ROW, [2], 0.5), "2.*3"),
        (lambda: critical_mask(ROW, [4, -1], 0.5), "sizes"),
        (lambda: critical_mask(ROW, [3], 1.5), "tau = 1.5"),
        (lambda: critical_mask(ROW, [3], float("nan")), "tau = nan"),
        (lambda: overlap(torch.ones(3)), r"\[3\]"),
        (lambda: overlap(torch.ones(2, 3)), "masks must be bool, not torch.float32"),
        (lambda: combine(TWO, torch.ones(2, 3), EYE), "masks must be bool"),
        (lambda: combine(TWO, ALL, torch.ones(2, 2)), "groups must be bool"),
        (lambda: threshold(TWO, 1, 2), r"\[2, 3\]"),
        (lambda: threshold(torch.ones(2, 2), 1, 0), "beta = 0"),
        (lambda: collaborators(TWO, 5, 2), r"\[2, 3\]"),
        (lambda: combine(TWO, ALL[:1], EYE), r"\[1, 3\]"),
        (lambda: combine(TWO, ALL[:, :2], EYE), r"\[2, 2\]"),
        (lambda: combine(TWO, ALL, torch.ones(3, 3)), r"\[3, 3\]"),
        (lambda: combine(TWO, ALL, EYE, torch.ones(3)), "weights"),
        (lambda: combine(TWO, ALL, EYE, torch.zeros(2)), "weights"),
        (lambda: combine(TWO, ALL, EYE, None, "mean"), "'mean'.*paper, support"),  # type: ignore[arg-type]
        (lambda: perturbation(ROW.long(), ROW.long(), hessian=True), "gradient.*int64.*float"),
        (lambda: critical_mask(ROW.numpy(), [3], 0.5), "torch tensor .* ndarray"),  # type: ignore[arg-type]
        (lambda: critical_mask(ROW, [1.5, 1.5], 0.5), r"whole numbers.*\[1.5, 1.5\]"),  # type: ignore[list-item]
        (lambda: critical_mask(ROW, [3], 0.5, floor=NAN), "floor = nan"),
        (lambda: critical_mask(torch.tensor([[1.0, NAN, 2.0]]), [3], 0.5), "scores hold NaN"),
        (lambda: threshold(EYE, -1, 5), "t = -1"),
        (lambda: collaborators(EYE, NAN, 5), "t = nan"),  # type: ignore[arg-type]
        (lambda: collaborators(EYE, 1, NAN), "beta = nan"),  # type: ignore[arg-type]
        (lambda: collaborators(torch.tensor([[1, NAN], [0.5, 1]]), 1, 5), "overlap holds NaN"),
        (lambda: combine(TWO.long(), ALL, EYE), "values.*int64.*float"),
        (lambda: combine(TWO * NAN, ALL, EYE), "values hold NaN"),
        (lambda: combine(TWO.double() * 1e300, ALL, EYE), "beyond float32"),
        (lambda: combine(TWO * 3e38, ALL, ~EYE | EYE), "sums are beyond float32"),
        (lambda: combine(TWO, ALL, EYE & ~EYE), "row 0 is empty"),
        (lambda: combine(TWO, ALL, EYE, torch.tensor([-1.0, 3.0])), r"weights.*from 0 up.*-1.0"),
        (lambda: combine(TWO, ALL, EYE, torch.tensor([INF, 1.0])), "weights.*inf"),
        (lambda: combine(TWO, ALL, EYE, torch.tensor([3e38, 3e38])), "sum in float32"),
        (lambda: combine(TWO, ALL, EYE, [1, 1]), "weights must be a tensor"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        call()


# What is unusual and fits is computed as anything else


def test_scores_of_any_float_type_give_the_same_mask() -> None:
    scores = torch.tensor([[1.0, 4.0, 3.0, 2.0]])
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        assert torch.equal(critical_mask(scores.to(kind), [4], 0.5), bits("0110"))


def test_an_infinite_score_is_the_best_there_is() -> None:
    # k = 1: the largest of 1, inf, 3
    assert torch.equal(critical_mask(torch.tensor([[1.0, INF, 3.0]]), [3], 0.34), bits("010"))


def test_tensors_that_are_views_give_the_same_numbers() -> None:
    values, masks, groups = (x.T.contiguous().T for x in (VALUES, MASKS, GROUPS))
    assert torch.equal(combine(values, masks, groups), combine(VALUES, MASKS, GROUPS))
    assert torch.equal(overlap(masks), overlap(MASKS))
    assert torch.equal(critical_mask(values, [2, 2], 0.5), critical_mask(VALUES, [2, 2], 0.5))


def test_weights_of_a_model_can_be_merged_while_they_carry_gradients() -> None:
    merged = combine(VALUES.clone().requires_grad_(), MASKS, GROUPS)
    assert torch.equal(merged, combine(VALUES, MASKS, GROUPS))
    assert not merged.requires_grad


def test_nobody_and_nothing_are_merged_to_nothing() -> None:
    none = torch.zeros(0, 3, dtype=torch.bool)
    assert combine(torch.zeros(0, 3), none, torch.zeros(0, 0, dtype=torch.bool)).shape == (0, 3)
    assert combine(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), EYE).shape == (2, 0)
    assert critical_mask(torch.zeros(0, 3), [3], 0.5).shape == (0, 3)
    assert overlap(none).shape == (0, 0)


def test_a_client_of_weight_zero_counts_for_nobody_in_the_global_part() -> None:
    # theta_bar is client 2's alone: 1, 0, 0, 0; critical parts as without weights
    expected = torch.tensor([[2.0, 4, 0, 0], [1, 6, 8, 0], [2.5, 0, 0, 0]])
    torch.testing.assert_close(combine(VALUES, MASKS, GROUPS, torch.tensor([0, 0, 2])), expected)
