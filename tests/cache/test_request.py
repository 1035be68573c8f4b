"""Refs: small self-checked files."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import BLOBS, manifest_of

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.cache.key import Difference
from vcc.cache.manifest import NewerFormat
from vcc.cache.request import Entry, decode_ref, encode_ref

MANIFEST = manifest_of().with_blobs(BLOBS)
ENTRY = Entry.of(MANIFEST, Digest.of(MANIFEST.encode()))
NAMES = (ENTRY.base.digest.hex, ENTRY.artifact)


def with_sum(record: bytes) -> bytes:
    return record + b"\n" + Digest.of(record).hex.encode() + b"\n"


def altered(**changes: object) -> bytes:
    fields = {**msgspec.to_builtins(ENTRY), "format_version": "1.1", **changes}
    return with_sum(canonical.encode(fields, "ref"))


def test_a_ref_reads_back():
    assert decode_ref(encode_ref(ENTRY), *NAMES) == ENTRY
    assert altered() == encode_ref(ENTRY)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"mode": "none"}, (("mode", "none"),)),
        ({"model.dtype": "fp8", "new": "1", "mode": 2}, ()),
        ([["mode", "none"]], ()),
    ],
)
def test_what_was_settled_is_repeated_for_open_fields_only(said, kept):
    manifest = manifest_of(info={"settled": said}).with_blobs(BLOBS)
    entry = Entry.of(manifest, Digest.of(manifest.encode()))
    assert entry.settled == kept
    assert decode_ref(encode_ref(entry), entry.base.digest.hex, entry.artifact) == entry
    assert entry.differences({"mode": "full"}) == (), "a look-up goes by what was asked for"


def test_an_entry_says_what_it_does_not_answer():
    assert ENTRY.differences({"mode": "full"}) == ()
    assert ENTRY.differences({"mode": "none", "new": "1"}) == (
        Difference("mode", "full", "none"),
        Difference("new", None, "1"),
    )


def test_unknown_fields_of_a_later_minor_version_are_ignored():
    assert decode_ref(altered(format_version="1.3", later=[1]), *NAMES) == ENTRY


def test_another_major_version_is_a_miss():
    with pytest.raises(NewerFormat):
        decode_ref(altered(format_version="2.0", request=0), *NAMES)


@pytest.mark.parametrize(
    "changes",
    [
        {"artifact": "x"},
        {"artifact": "b" * 64},
        {"request": [["a", "1"]]},
        {"settled": [["b", "1"], ["a", "1"]]},
        {"request": [["b", "1"], ["a", "1"]]},
        {"open_fields": 3},
        {"created": -1},
        {"size": True},
        {"size": -1},
        {"format_version": None},
        {"title": None},
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_even_with_a_right_sum(changes):
    with pytest.raises(FormatError):
        decode_ref(altered(**changes), *NAMES)


@pytest.mark.parametrize("record", [b"[]", b"1", b'{"a":1,"a":1}', b"[" * 5000, b"", b"{}"])
def test_a_record_that_is_none_is_refused_even_with_a_right_sum(record):
    with pytest.raises(FormatError):
        decode_ref(with_sum(record), *NAMES)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    with pytest.raises(FormatError):
        decode_ref(data, *NAMES)


def test_a_ref_under_another_name_is_refused():
    with pytest.raises(FormatError, match="another artifact"):
        decode_ref(encode_ref(ENTRY), NAMES[0], "c" * 64)
    with pytest.raises(FormatError, match="another request"):
        decode_ref(encode_ref(ENTRY), "c" * 64, NAMES[1])
