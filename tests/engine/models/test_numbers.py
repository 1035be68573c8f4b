"""The numbers rule itself: it can fail, in each of its clauses."""

from __future__ import annotations

import pytest
import torch
from support.numbers import (
    assert_fp32_close,
    assert_low_precision,
    assert_quantised,
    assert_states_close,
    assert_states_low_precision,
)

REFERENCE = torch.tensor([[1.0, 5.0, -10.0], [3.0, 2.0, 0.0]])


def shifted(by: float, row: int = 0, column: int = 0) -> torch.Tensor:
    found = REFERENCE.clone()
    found[row, column] += by
    return found


def test_fp32_allows_a_ten_thousandth_of_the_largest_logit_of_the_position() -> None:
    assert_fp32_close(shifted(9e-4), REFERENCE)
    assert_fp32_close(shifted(2.9e-4, row=1), REFERENCE)
    for bad in (shifted(1.1e-3), shifted(3.2e-4, row=1), shifted(float("nan"))):
        with pytest.raises(AssertionError):
            assert_fp32_close(bad, REFERENCE)


def test_fp32_wants_the_same_best_token() -> None:
    near = torch.tensor([[1.0, 1.0 + 1e-5]])
    with pytest.raises(AssertionError, match="other tokens"):
        assert_fp32_close(near.flip(1), near)


def test_low_precision_allows_a_quarter_more_than_the_peer() -> None:
    peer = shifted(0.1)
    assert_low_precision(shifted(0.12), REFERENCE, peer)
    with pytest.raises(AssertionError, match="rms"):
        assert_low_precision(shifted(0.13), REFERENCE, peer)


def test_low_precision_bounds_the_maximum_as_well() -> None:
    peer = REFERENCE + 0.1
    with pytest.raises(AssertionError, match="maximum"):
        assert_low_precision(shifted(0.2), REFERENCE, peer)


def test_low_precision_wants_the_best_token_where_the_lead_is_clear() -> None:
    reference, peer, near = (torch.zeros(1, 100) for _ in range(3))
    reference[0, 1] = 1.0
    peer[0, [1, 5, 6]] = torch.tensor([1.0, 0.6, 0.6])
    near[0, [0, 1]] = torch.tensor([0.7, 0.6])
    with pytest.raises(AssertionError, match="other tokens"):
        assert_low_precision(near, reference, peer)


def test_one_value_in_a_thousand_may_be_far_off_where_activations_are_quantised() -> None:
    torch.manual_seed(0)
    reference = torch.randn(40, 100)
    peer = reference + 0.1 * torch.randn(40, 100)
    actual = reference + 0.1 * torch.randn(40, 100)
    actual[3, 7] += 0.6
    assert_quantised(actual, reference, peer)
    with pytest.raises(AssertionError, match="maximum"):
        assert_low_precision(actual, reference, peer)
    with pytest.raises(AssertionError, match="one in a thousand"):
        assert_quantised(actual + (torch.rand(40, 100) < 0.004) * 0.6, reference, peer)
    with pytest.raises(AssertionError, match="rms"):
        assert_quantised(reference + 1.4 * (actual - reference), reference, peer)


def test_states_have_no_best_column() -> None:
    near = torch.tensor([[1.0, 1.0 + 1e-5]])
    assert_states_close(near.flip(1), near)
    reference, peer, other = (torch.zeros(1, 100) for _ in range(3))
    reference[0, 1] = 1.0
    peer[0, [1, 5, 6]] = torch.tensor([1.0, 0.6, 0.6])
    other[0, [0, 1]] = torch.tensor([0.7, 0.6])
    assert_states_low_precision(other, reference, peer)


def test_states_are_held_to_their_errors() -> None:
    for bad in (shifted(1.1e-3), shifted(3.2e-4, row=1), shifted(float("nan"))):
        with pytest.raises(AssertionError):
            assert_states_close(bad, REFERENCE)
    assert_states_low_precision(shifted(0.12), REFERENCE, shifted(0.1))
    with pytest.raises(AssertionError, match="rms"):
        assert_states_low_precision(shifted(0.13), REFERENCE, shifted(0.1))
    with pytest.raises(AssertionError, match="maximum"):
        assert_states_low_precision(shifted(0.2), REFERENCE, REFERENCE + 0.1)
    with pytest.raises(AssertionError, match="not finite"):
        assert_states_low_precision(shifted(float("nan")), REFERENCE, REFERENCE + 0.1)
