"""A sampled token depends on its logits, parameters, seed, request and step, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_runner import logits_of

from vcc.cache.errors import UsageError
from vcc.engine.runtime.sample import SamplingParams, has_highest, philox, sample, uniform


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # known-answer vectors of Random123
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0_A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(key, counter, words):
    assert philox(key, counter) == words


def test_greedy_takes_the_first_of_equal_logits():
    assert sample(np.array([0.0, 3.0, 3.0], dtype=np.float32), SamplingParams(), 0, 0) == 1
    one = SamplingParams(temperature=1.0, top_k=1)
    assert sample(np.array([0.0, 3.0, 3.0], dtype=np.float32), one, 5, 9) == 1


def test_seed_request_and_step_each_change_the_number():
    numbers = {uniform(*at) for at in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 40, 0, 0))}
    assert len(numbers) == 5
    assert all(0 < number < 1 for number in numbers)


def _drawn(logits, params, count=400):
    return [sample(logits, params, 0, step) for step in range(count)]


def test_frequencies_follow_the_probabilities():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.log(probabilities).astype(np.float32)
    drawn = np.bincount(_drawn(logits, SamplingParams(temperature=1.0), 8000), minlength=4) / 8000
    assert np.abs(drawn - probabilities).max() < 0.02


def test_top_k_keeps_the_lower_ids_of_equal_logits():
    logits = np.array([1.0, 2.0, 1.0, 1.0], dtype=np.float32)
    assert set(_drawn(logits, SamplingParams(temperature=1.0, top_k=2))) == {0, 1}


def test_top_p_keeps_the_fewest_tokens_that_reach_p():
    logits = np.log(np.array([0.15, 0.5, 0.05, 0.3])).astype(np.float32)
    for p, kept in ((0.4, {1}), (0.6, {1, 3}), (0.81, {0, 1, 3}), (1.0, {0, 1, 2, 3})):
        assert set(_drawn(logits, SamplingParams(temperature=1.0, top_p=p))) == kept


@pytest.mark.filterwarnings("error")
def test_a_tiny_temperature_is_greedy_and_does_not_overflow():
    logits = logits_of([1, 2], 50) * 1000
    for temperature in (1e-6, 1e-320):
        drawn = set(_drawn(logits, SamplingParams(temperature=temperature), 50))
        assert drawn == {int(np.argmax(logits))}


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.floats(0.1, 3.0),
    st.integers(0, 60),
    st.floats(0.05, 1.0),
)
def test_the_token_is_always_one_of_the_kept(history, temperature, top_k, top_p):
    logits = logits_of(history, 50)
    params = SamplingParams(temperature, top_k, top_p, seed=3)
    token = sample(logits, params, 1, 2)
    assert token == sample(logits.copy(), params, 1, 2)
    if top_k:
        assert token in np.argsort(-logits, kind="stable")[:top_k]


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("logits", "holds"),
    [
        ([1.0, NAN, 3.0], False),
        ([1.0, INF, 3.0], False),
        ([-INF, -INF, -INF], False),
        ([-INF, 2.0, -INF], True),
        ([0.0, 0.0, 0.0], True),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 2, 3])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_logits_without_a_largest_are_known_and_give_a_token(logits, holds, temperature, top_k):
    row, params = np.array(logits, dtype=np.float32), SamplingParams(temperature, top_k)
    token = sample(row, params, 0, 0)
    assert 0 <= token < 3
    assert has_highest(row) == holds
    if params.greedy or (top_k == 2 and not holds):
        assert token == int(np.argmax(row))
        assert has_highest(row, token) == holds


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", 10**400),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(UsageError, match=field.replace("_", "-")) as error:
        SamplingParams(**{field: value})
    assert error.value.why


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", "1"), ("top_k", 1.5), ("top_k", True), ("top_p", None), ("seed", 1.5)],
)
def test_values_of_another_kind_are_refused(field, value):
    with pytest.raises(UsageError, match=f"{field} is {value!r}: it is a") as error:
        SamplingParams(**{"temperature": 1.0, field: value})
    assert error.value.hint in ("it must be a number", "it must be a whole number")
