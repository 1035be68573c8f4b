"""The manifest parser on good, later and hostile manifests (rows 48-57 of RELIABILITY)."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import BLOBS, manifest_of

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.manifest import BlobRef, Manifest, NewerFormat, kind_of

GOOD = manifest_of().with_blobs(BLOBS)


def altered(**changes: object) -> bytes:
    fields = msgspec.json.decode(GOOD.encode())
    return canonical.encode({**fields, **changes}, "manifest")


def with_blob(**changes: object) -> bytes:
    ref = {"sha256": "a" * 64, "xxh3": "b" * 32, "size": 3, "kind": "data", **changes}
    return altered(blobs={"program": ref})


def test_a_manifest_reads_back_and_is_the_same_bytes():
    assert Manifest.decode(GOOD.encode()) == GOOD
    assert Manifest.decode(GOOD.encode()).encode() == GOOD.encode()


def test_blobs_are_described_by_what_they_hold():
    assert {name: ref.size for name, ref in GOOD.blobs.items()} == {
        name: len(data) for name, data in BLOBS.items()
    }
    assert GOOD.blobs["piece/0.so"] == BlobRef.of("piece/0.so", BLOBS["piece/0.so"], "library")
    assert GOOD.size == sum(map(len, BLOBS.values()))


def test_one_blob_under_two_names_counts_once():
    assert manifest_of().with_blobs({"golden/0": b"abc", "golden/1": b"abc"}).size == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("program", "program"),
        ("piece/12.so", "library"),
        ("piece/12.json", "library-table"),
        ("constant/a", "constant"),
        ("golden/1", "golden"),
        ("other", "data"),
    ],
)
def test_the_kind_follows_from_the_name(name, kind):
    assert kind_of(name) == kind


def test_base_is_the_request_without_open_fields():
    assert [label for label, _ in GOOD.base] == ["model.digest", "model.dtype"]


def test_an_unknown_minor_version_is_read():
    assert Manifest.decode(altered(format_version="1.7")).format_version == "1.7"


@pytest.mark.parametrize("version", ["0.9", "2.0", "10.0"])
def test_an_unknown_major_version_is_a_miss_whatever_else_is_in_it(version):
    with pytest.raises(NewerFormat):
        Manifest.decode(altered(format_version=version, blobs=17))


def test_a_manifest_of_the_first_version_is_read_without_the_later_fields():
    fields = msgspec.json.decode(GOOD.encode())
    del fields["build_ms"]
    data = canonical.encode({**fields, "format_version": "1.0"}, "manifest")
    assert Manifest.decode(data).build_ms == 0


def test_unknown_optional_fields_are_kept():
    data = altered(later={"a": [1]})
    assert Manifest.decode(data).extra == {"later": {"a": [1]}}
    assert Manifest.decode(data).encode() == data


def test_an_unknown_critical_field_is_a_miss():
    with pytest.raises(NewerFormat, match="later"):
        Manifest.decode(altered(later=1, critical=["later"]))
    assert Manifest.decode(altered(critical=["blobs"])).critical == ("blobs",)


@pytest.mark.parametrize(
    "field",
    ["request", "code_key", "blobs", "created", "builder", "critical", "format_version", "info"],
)
def test_a_missing_field_is_refused(field):
    fields = msgspec.json.decode(GOOD.encode())
    del fields[field]
    with pytest.raises(FormatError):
        Manifest.decode(canonical.encode(fields, "manifest"))


@pytest.mark.parametrize(
    "changes",
    [
        {"created": -1},
        {"created": "12"},
        {"created": True},
        {"created": 1.0},
        {"build_ms": -1},
        {"build_ms": 1.5},
        {"request": {"a": "b"}},
        {"request": [["b", "1"], ["a", "1"]]},
        {"request": [["a", "1"], ["a", "2"]]},
        {"request": [["a", "1", "2"]]},
        {"code_key": [["a", 1]]},
        {"code_key": [["a", "/etc/passwd"]]},
        {"open_fields": ["not.there"]},
        {"open_fields": ["mode", "mode"]},
        {"host_rules": {"cpu": 3}},
        {"format_version": 1},
        {"format_version": "1"},
        {"format_version": "1.0.0"},
        {"info": []},
        {"extra": {}},
    ],
    ids=str,
)
def test_a_wrong_field_is_refused(changes):
    with pytest.raises(FormatError):
        Manifest.decode(altered(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"size": -1},
        {"size": "3"},
        {"size": True},
        {"size": 3.0},
        {"sha256": "a" * 63},
        {"sha256": "A" * 64},
        {"xxh3": ""},
        {"kind": None},
        {"path": "/etc/passwd"},
    ],
    ids=str,
)
def test_a_wrong_blob_reference_is_refused(changes):
    with pytest.raises(FormatError):
        Manifest.decode(with_blob(**changes))


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.b", "a b", "a\\b", "x" * 256, "ä", "a\n"],
)
def test_a_blob_name_that_could_be_a_path_trick_is_refused(name):
    ref = msgspec.to_builtins(GOOD.blobs["program"])
    with pytest.raises(FormatError):
        Manifest.decode(altered(blobs={name: ref}))


@pytest.mark.parametrize("data", [b"[]", b"1", b"null", b'"x"', b"{}"])
def test_json_that_is_no_manifest_is_refused(data):
    with pytest.raises(FormatError):
        Manifest.decode(data)


def test_a_manifest_over_the_caps_is_not_written():
    with pytest.raises(FormatError, match="too large"):
        manifest_of(info={"x": "y" * (1 << 20)}).encode()
    with pytest.raises(FormatError, match="known field"):
        manifest_of(extra={"blobs": {}}).encode()


@given(st.data())
def test_a_changed_byte_never_reads_as_the_same_manifest(data):
    text = bytearray(GOOD.encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] ^= data.draw(st.integers(1, 255))
    with suppress(FormatError, NewerFormat):
        assert Manifest.decode(bytes(text)) != GOOD
