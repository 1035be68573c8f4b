"""The form of a pack: everything in order, once, and within its caps."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache import canonical
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, VccError
from vcc.cache.manifest import NewerFormat
from vcc.cache.pack.form import HEAD, MAGIC, Index, PackError, decode_index, encode_head, length_of

A, B, C, D = (letter * 64 for letter in "abcd")
GOOD = Index(
    refs=((B, A, C, 10),), signatures=((A, D, C, 20),), manifests=((A, 30),), blobs=((C, 40),)
)


def changed(**fields):
    return msgspec.structs.replace(GOOD, **fields)


def read(data):
    head = data[:HEAD]
    return decode_index(head, data[HEAD : HEAD + length_of(head)])


def head_of(text):
    return MAGIC + len(text).to_bytes(8, "little") + bytes.fromhex(Digest.of(text).hex) + text


def test_what_is_written_is_read():
    assert read(encode_head(GOOD)) == GOOD
    assert GOOD.size == 100


BAD = {
    "a ref twice": changed(refs=((B, A, C, 10), (B, A, C, 10))),
    "refs out of order": changed(refs=((B, D, C, 1), (B, A, C, 1)), manifests=((A, 1), (D, 1))),
    "no artifact": changed(refs=(), manifests=(), signatures=()),
    "a manifest too many": changed(manifests=((A, 1), (B, 1))),
    "a manifest too few": changed(manifests=()),
    "a manifest twice": changed(manifests=((A, 1), (A, 2))),
    "a blob twice": changed(blobs=((C, 1), (C, 2))),
    "a signature of a stranger": changed(signatures=((B, D, C, 1),)),
    "a name that is no digest": changed(blobs=(("../x", 1),)),
    "a key that is none": changed(signatures=((A, "../x", C, 1),)),
    "a negative size": changed(blobs=((C, -1),)),
    "a huge blob": changed(blobs=((C, 1 << 41),)),
    "a huge ref": changed(refs=((B, A, C, 1 << 21),)),
    "a huge signature": changed(signatures=((A, D, C, 1 << 15),)),
    "a huge manifest": changed(manifests=((A, 1 << 21),)),
    "many signatures": changed(
        signatures=tuple((A, f"{number:064x}", C, 1) for number in range(17))
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_that_breaks_a_rule_is_neither_written_nor_read(name):
    with pytest.raises(PackError):
        encode_head(BAD[name])
    text = canonical.encode(msgspec.to_builtins(BAD[name]), "index")
    with pytest.raises(PackError):
        read(head_of(text))


@pytest.mark.parametrize(
    "text",
    [b"[]", b"{}", b"null", b'{"refs":1}', b"[" * 9000, b'{"format_version":"1.0"}', b"\xff"],
)
def test_text_that_is_no_index_is_refused(text):
    with pytest.raises(IntegrityError):
        read(head_of(text))


def test_an_index_with_an_unknown_field_is_refused():
    fields = {**msgspec.to_builtins(GOOD), "more": 1}
    with pytest.raises(PackError, match="wrong field"):
        read(head_of(canonical.encode(fields, "index")))


def test_a_later_major_version_is_said():
    fields = {**msgspec.to_builtins(GOOD), "format_version": "2.0"}
    with pytest.raises(NewerFormat):
        read(head_of(canonical.encode(fields, "index")))


def test_an_index_over_its_cap_is_refused_unread():
    head = MAGIC + (MAX_BYTES + 1).to_bytes(8, "little") + bytes(32)
    with pytest.raises(PackError, match="index would have"):
        length_of(head)


@pytest.mark.parametrize("head", [b"", b"PK\x03\x04", b"vccpack 2\n" + bytes(40), MAGIC])
def test_a_file_that_is_no_pack_is_refused(head):
    with pytest.raises(PackError, match="not a pack"):
        length_of(head)


def test_more_than_an_index_may_hold_is_refused_when_it_is_written():
    blobs = tuple((f"{number:064x}", 1) for number in range(20_000))
    with pytest.raises(IntegrityError, match="too large"):
        encode_head(changed(blobs=blobs))


@given(st.binary(max_size=400))
def test_any_bytes_are_an_index_or_an_error(data):
    for text in (MAGIC + data, head_of(data)):
        try:
            read(text)
        except VccError:
            continue
