"""Canonical JSON: one text per value, hostile text refused early."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.canonical import MAX_BYTES, MAX_DEPTH, MAX_INT, FormatError, decode, encode
from vcc.cache.errors import IntegrityError
from vcc.cache.key import is_clean

TEXTS = st.text(max_size=10).filter(is_clean)
SCALARS = st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | TEXTS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | FLOATS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)

HOSTILE = {
    "repeated key": b'{"a":1,"a":2}',
    "unsorted": b'{"b":1,"a":2}',
    "white space": b'{"a": 1}',
    "trailing newline": b'{"a":1}\n',
    "two values": b"{}{}",
    "empty": b"",
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":Infinity}',
    "1e400": b'{"a":1e400}',
    "other spelling of a float": b'{"a":1e2}',
    "minus zero": b'{"a":-0}',
    "2^53+1": b'{"a":9007199254740993}',
    "2^63": b'{"a":9223372036854775808}',
    "2^64": b'{"a":18446744073709551616}',
    "thousand digits": b'{"a":' + b"9" * 1000 + b"}",
    "byte-order mark": b'\xef\xbb\xbf{"a":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "lone surrogate, escaped": b'{"a":"\\ud800"}',
    "lone surrogate, raw": b'{"a":"\xed\xa0\x80"}',
    "NUL": b'{"a":"\\u0000"}',
    "NUL in a name": b'{"\\u0000":1}',
    "not NFC": '{"a":"e\u0301"}'.encode(),
    "needless escape": b'{"a":"\\u0041"}',
    "depth bomb": b"[" * 500_000 + b"]" * 500_000,
    "depth bomb, open": b"[" * MAX_BYTES,
    "depth bomb of objects": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "100 MB": b" " * 100_000_000,
    "quotes bomb": b'"\\' * (MAX_BYTES // 2),
    "unbalanced": b"[}",
}


@given(VALUES)
def test_every_value_reads_back(value):
    assert decode(encode(value, "thing"), "thing") == value


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_format_error(data):
    try:
        value = decode(data, "thing")
    except FormatError:
        return
    assert encode(value, "thing") == data


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_fast_and_small(name):
    start = time.process_time()
    with pytest.raises(IntegrityError, match="thing"):
        decode(HOSTILE[name], "thing")
    assert time.process_time() - start < 0.25


def test_a_huge_text_is_refused_in_little_memory():
    data = HOSTILE["100 MB"]
    tracemalloc.start()
    with pytest.raises(FormatError, match="too large"):
        decode(data, "thing")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_caps_are_those_of_the_format():
    assert (MAX_BYTES, MAX_DEPTH, MAX_INT) == (2**20, 16, 2**53)


def test_the_deepest_allowed_value_passes_and_one_more_does_not():
    at_cap = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert encode(decode(at_cap, "thing"), "thing") == at_cap
    with pytest.raises(FormatError, match="deep"):
        decode(b"[" + at_cap + b"]", "thing")


def test_brackets_inside_strings_do_not_count():
    value = ["[" * 100, '"]' * 40, "\\" * 3 + "{"]
    assert decode(encode(value, "thing"), "thing") == value


@pytest.mark.parametrize("value", [{1: 2}, object(), MAX_INT + 1, float("inf"), "e\u0301", b"x"])
def test_a_value_without_canonical_text_is_not_written(value):
    with pytest.raises(FormatError):
        encode({"a": value}, "thing")
