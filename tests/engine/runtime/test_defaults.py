"""The user's word goes before the model's config, and what is not followed is said."""

from __future__ import annotations

import pytest

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.runtime.defaults import MAX_NEW_TOKENS, Overrides, resolve_generation
from vcc.engine.runtime.sample import SamplingParams

LLAMA = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}


@pytest.mark.parametrize(
    ("generation", "user", "params"),
    [
        ({}, Overrides(), SamplingParams()),
        (LLAMA, Overrides(), SamplingParams(0.6, 0, 0.9)),
        (LLAMA, Overrides(temperature=0.0), SamplingParams(0.0, 0, 0.9)),
        (LLAMA, Overrides(top_k=5, seed=7), SamplingParams(0.6, 5, 0.9, 7)),
        ({"temperature": 0.6}, Overrides(), SamplingParams()),
        ({"temperature": 0.6}, Overrides(top_p=0.5), SamplingParams(0.6, 0, 0.5)),
        ({"do_sample": False}, Overrides(seed=3), SamplingParams(seed=3)),
        ({"do_sample": True, "top_k": None}, Overrides(), SamplingParams(1.0)),
    ],
)
def test_sampling(generation, user, params):
    assert resolve_generation(generation, user).params == params


@pytest.mark.parametrize(
    ("eos", "ids"), [(None, set()), (7, {7}), ([1, 2], {1, 2}), (0, {0}), ([], set())]
)
def test_eos_is_one_id_or_a_list(eos, ids):
    assert resolve_generation({"eos_token_id": eos}, Overrides()).eos == ids
    assert resolve_generation({"eos_token_id": eos}, Overrides(ignore_eos=True)).eos == frozenset()


def test_length_of_the_answer():
    assert resolve_generation({}, Overrides()).max_new_tokens == MAX_NEW_TOKENS
    assert resolve_generation({"max_new_tokens": 9}, Overrides()).max_new_tokens == 9
    assert (
        resolve_generation({"max_new_tokens": 9}, Overrides(max_new_tokens=3)).max_new_tokens == 3
    )
    assert resolve_generation({}, Overrides(max_new_tokens=0)).max_new_tokens == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "0.5"),
        ("temperature", True),
        ("top_k", 1.5),
        ("top_p", [1]),
        ("max_new_tokens", "5"),
        ("max_new_tokens", float("inf")),
        ("seed", None),
        ("ignore_eos", "no"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_field(name, value):
    with pytest.raises(UsageError, match=name):
        Overrides(**{name: value})


def test_what_is_not_followed_is_said():
    notes = resolve_generation({"repetition_penalty": 1.1, "num_beams": 1}, Overrides()).notes
    assert len(notes) == 1
    assert "repetition_penalty = 1.1" in notes[0]


@pytest.mark.parametrize(
    "generation",
    [
        {"do_sample": True, "temperature": "hot"},
        {"do_sample": True, "top_k": True},
        {"max_new_tokens": "9"},
        {"eos_token_id": "</s>"},
        {"eos_token_id": [1, None]},
        {"max_new_tokens": float("nan")},
        {"max_new_tokens": float("inf")},
        {"do_sample": True, "top_k": float("inf")},
        {"do_sample": True, "temperature": 10**400},
    ],
)
def test_wrong_types_are_named(generation):
    with pytest.raises(ModelError, match=r"number|token id|top_k|temperature|max_new_tokens"):
        resolve_generation(generation, Overrides())


def test_values_out_of_range_are_refused():
    with pytest.raises(UsageError, match="top-p"):
        resolve_generation({"do_sample": True, "top_p": 2.0}, Overrides())
