"""Keys: order does not matter, different entries have different texts, nothing is a path."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import UsageError
from vcc.cache.key import Difference, Key, canonical_value, cleaned, is_clean

LABELS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,12}", fullmatch=True)
VALUES = st.text(max_size=30).filter(
    lambda text: is_clean(text) and not text.startswith(("/", "~", "file:")) and text[1:2] != ":"
)
FIELDS = st.dictionaries(LABELS, VALUES, max_size=6)


@given(FIELDS, st.randoms(use_true_random=False))
def test_order_of_entries_does_not_matter(fields, rng: random.Random):
    shuffled = list(fields.items())
    rng.shuffle(shuffled)
    assert Key(tuple(shuffled)).digest == Key.of(fields).digest


@given(FIELDS, FIELDS)
def test_keys_are_equal_exactly_when_their_texts_are(one, other):
    assert (one == other) == (Key.of(one).text == Key.of(other).text)
    assert (one == other) == (Key.of(one).digest == Key.of(other).digest)


@given(FIELDS)
def test_text_reads_back(fields):
    key = Key.of(fields)
    assert Key.parse(key.text) == key
    assert key.text.isascii()


@given(FIELDS, FIELDS)
def test_diff_is_empty_only_for_equal_keys_and_names_each_label(one, other):
    differences = Key.of(one).diff(Key.of(other))
    assert (not differences) == (one == other)
    for item in differences:
        assert (one.get(item.label), other.get(item.label)) == (item.wanted, item.found)


def test_a_value_cannot_pretend_to_be_another_entry():
    assert Key.of({"a": '1"\nb = "2'}).text.count("\n") == 2
    assert Key.of({"a": "1", "b": "2"}) != Key.of({"a": '1"\nb = "2'})


def test_diff_reads_as_a_sentence():
    difference = Key.of({"dtype": "bf16"}).diff(Key.of({"dtype": "fp32"}))
    assert difference == (Difference("dtype", "fp32", "bf16"),)
    assert str(difference[0]) == "dtype: found 'fp32', wanted 'bf16'"


@pytest.mark.parametrize("value", ["/home/me/x", "~/x", "file:///x", "C:\\x", "c:/x"])
def test_a_path_is_refused(value):
    with pytest.raises(UsageError, match="is a path"):
        Key.of({"model": value})


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "e\u0301"])
def test_unclean_text_is_refused(value):
    with pytest.raises(UsageError, match="not clean"):
        Key.of({"model": value})


@pytest.mark.parametrize("label", ["", "1a", "a b", "a=b", "ä", "a\n", "x" * 201])
def test_a_malformed_label_is_refused(label):
    with pytest.raises(UsageError, match="label"):
        Key.of({label: "x"})


def test_a_repeated_label_and_a_value_that_is_not_text_are_refused():
    with pytest.raises(UsageError, match="twice"):
        Key((("a", "1"), ("a", "2")))
    with pytest.raises(UsageError, match="not text"):
        Key((("a", 1),))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "vcc-key 2\n", 'vcc-key 1\nb = "1"\na = "1"\n', "vcc-key 1"])
def test_text_that_is_not_canonical_is_refused(text):
    with pytest.raises(UsageError):
        Key.parse(text)


def test_canonical_values_ignore_the_order_of_sets_and_dicts():
    assert canonical_value({"b": {3, 1}, "a": 1}) == canonical_value({"a": 1, "b": {1, 3}})
    assert canonical_value("text") == "text"
    with pytest.raises(UsageError, match="canonical"):
        canonical_value(float("nan"))


@given(st.text(alphabet=st.characters(categories=None) | st.sampled_from("\0\ud800\udcffe\u0301")))
def test_cleaned_text_is_clean_and_clean_text_stays(text):
    assert is_clean(cleaned(text))
    assert not is_clean(text) or cleaned(text) == text
