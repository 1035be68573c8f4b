"""Writing packs: the same bytes each time, nothing damaged in them."""

from __future__ import annotations

import io

import pytest
from support.packs import drain, pack_of
from support.stores import BLOBS, blob_path, flipped, overwrite

from vcc.cache.blob import Damaged
from vcc.cache.digest import Digest
from vcc.cache.pack.write import content_of, write_pack
from vcc.cache.store import Store


def test_the_same_artifacts_give_the_same_bytes(source):
    assert pack_of(source) == pack_of(source)


def test_a_blob_of_two_artifacts_is_in_it_once(packed):
    assert packed.count(BLOBS["piece/0.so"]) == 1


def test_signatures_go_with_their_artifact(source):
    entry = next(source.entries())
    place = source.root / "v1" / "signatures" / entry.artifact
    place.mkdir(parents=True, mode=0o700)
    (place / ("ab" * 32)).write_bytes(b"signature")
    found = {one.entry.artifact: one.signatures for one in drain(pack_of(source)).artifacts}
    assert found[entry.artifact] == {"ab" * 32: b"signature"}


def test_damage_ends_the_writing(source):
    bad = Digest.of(BLOBS["golden/0"])
    overwrite(blob_path(source.root, bad), flipped(BLOBS["golden/0"], 1, 1))
    with pytest.raises(Damaged):
        pack_of(source)


def test_the_bytes_are_told_and_each_blob(source):
    out, told = io.BytesIO(), []
    content = content_of(source, tuple(source.entries()))
    size = write_pack(content, out.write, lambda item, state: told.append(state))
    assert size == len(out.getvalue())
    assert told == ["done"] * (len(BLOBS) + 1)


def test_artifacts_of_a_lower_tier_are_written_too(source, tmp_path):
    upper = Store(tmp_path / "upper", lower=(source.root,))
    assert pack_of(upper) == pack_of(source)
