"""The last look-up is noted beside the artifacts; losing or spoiling the note changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.stores import BASE, BLOBS, assert_intact, manifest_of

from vcc.cache.key import Key
from vcc.cache.notes import MAX_NOTE, LastLookup, last_lookup, note_lookup
from vcc.cache.store import Store

LOOKED = LastLookup("demo", BASE, (("mode", "full"),), (("model.kind", "decoder"),), "empty", 7)


def place(root: Path) -> Path:
    return root / "v1/notes/last-lookup"


@pytest.fixture
def filled(store: Store, root: Path) -> Path:
    """The root of a store that is there."""
    store.publish(manifest_of(), BLOBS)
    return root


def test_what_was_noted_is_read_back(filled: Path) -> None:
    assert last_lookup(filled) is None
    assert note_lookup(filled, LOOKED)
    assert last_lookup(filled) == LOOKED
    assert LOOKED.wanted == {"mode": "full"}


def test_a_later_note_takes_the_place_of_the_earlier(filled: Path) -> None:
    later = replace(LOOKED, model="other", base=Key.of({"model.digest": "cd" * 32}), when=8)
    for looked in (LOOKED, later):
        note_lookup(filled, looked)
    assert last_lookup(filled) == later
    assert os.listdir(place(filled).parent) == ["last-lookup"]
    assert os.listdir(filled / "v1/tmp") == []


def test_a_note_makes_no_store(root: Path) -> None:
    assert not note_lookup(root, LOOKED)
    assert not root.exists()
    assert last_lookup(root) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"model":1}', b"\xff" * 99, b"x" * (MAX_NOTE + 1)],
    ids=["empty", "cut", "list", "null", "types", "bytes", "long"],
)
def test_a_spoilt_note_is_no_note(filled: Path, data: bytes) -> None:
    note_lookup(filled, LOOKED)
    place(filled).write_bytes(data)
    assert last_lookup(filled) is None
    assert note_lookup(filled, LOOKED)
    assert last_lookup(filled) == LOOKED


@pytest.mark.parametrize("name", ["model", "base", "stated", "identity", "why", "when"])
def test_a_note_of_another_shape_is_no_note(filled: Path, name: str) -> None:
    from vcc.cache import canonical

    note_lookup(filled, LOOKED)
    value = canonical.decode(place(filled).read_bytes(), "note")
    assert isinstance(value, dict)
    for wrong in (None, {"a": 1}, [["a"]], [["/path", 1]]):
        place(filled).write_bytes(canonical.encode({**value, name: wrong}, "note"))
        assert last_lookup(filled) is None
    del value[name]
    place(filled).write_bytes(canonical.encode(value, "note"))
    assert last_lookup(filled) is None


def test_a_note_that_would_be_too_long_is_left_out(filled: Path) -> None:
    long = tuple((f"model.code.m{n}", "ab" * 32) for n in range(4000))
    assert not note_lookup(filled, replace(LOOKED, identity=long))


def test_a_link_in_the_place_of_a_note_is_not_followed(filled: Path, tmp_path: Path) -> None:
    note_lookup(filled, LOOKED)
    secret = tmp_path / "secret"
    secret.write_bytes(place(filled).read_bytes())
    place(filled).unlink()
    place(filled).symlink_to(secret)
    assert last_lookup(filled) is None
    before = secret.read_bytes()
    assert note_lookup(filled, replace(LOOKED, when=9))
    assert secret.read_bytes() == before


def test_notes_leave_artifacts_alone(store: Store, root: Path) -> None:
    entry = store.publish(manifest_of(), BLOBS)
    note_lookup(root, LOOKED)
    assert_intact(root, entry)
