"""Items: what lists show, read quickly and from untrusted files."""

from __future__ import annotations

import os
import time

import pytest
from support.stores import BLOBS, manifest_of, overwrite, quiet, ref_path

from vcc.cache import roots
from vcc.cache.care.items import builder_of, read_items
from vcc.cache.care.prune import items_of
from vcc.cache.request import encode_ref
from vcc.cache.root import opened
from vcc.cache.use import note_boot


def test_a_store_that_is_not_there_has_nothing(root):
    assert items_of(root).items == ()
    assert not root.exists()


def test_an_item_has_what_the_ref_the_notes_and_the_roots_tell(root, two):
    first, second = two
    note_boot(root, first.artifact)
    with opened(root, create=False) as store:
        roots.pin(store, first.artifact)
        roots.hold(store, first.artifact)
        newest, oldest = read_items(store, time.time()).items
        assert builder_of(store, newest) == {"torch": "2.13.0"}
        roots.release()
    assert (newest.artifact, oldest.artifact) == (second.artifact, first.artifact)
    assert (oldest.hits, oldest.pinned, oldest.holders) == (1, True, 1)
    assert (newest.hits, newest.pinned, newest.holders) == (0, False, 0)
    assert oldest.fields == first.fields
    assert oldest.rules == dict(first.host_rules)
    assert oldest.shown["model.dtype"] == "fp32"
    assert oldest.size == first.size
    assert newest.idle < 60


def test_a_list_shows_what_was_settled_and_keeps_what_was_asked(root):
    mode = "config.cuda_graph_mode"
    request = ((mode, "piecewise"), ("model.dtype", "fp32"))
    info = {"settled": {mode: "none", "model.dtype": "fp8"}}
    quiet(root).publish(manifest_of(request=request, open_fields=(mode,), info=info), BLOBS)
    (item,) = items_of(root).items
    assert item.shown == {mode: "none", "model.dtype": "fp32"}
    assert item.fields == dict(request)


def test_a_value_that_looks_like_a_pair_is_not_taken_for_one(root):
    request = (("config.mode", '"],["model.dtype","fp8'), ("model.dtype", "fp32"))
    quiet(root).publish(manifest_of(request=request, open_fields=()), BLOBS)
    (item,) = items_of(root).items
    assert item.shown == {"model.dtype": "fp32"}
    assert item.fields == dict(request)


@pytest.mark.parametrize("offset", [0, 1, 50, -67, -66, -10, -1])
def test_a_ref_with_a_changed_bit_is_not_shown_but_counted(root, two, offset):
    path = ref_path(root, two[0])
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    overwrite(path, bytes(data))
    found = items_of(root)
    assert [item.artifact for item in found.items] == [two[1].artifact]
    assert found.bad == 1


@pytest.mark.parametrize("text", [b"", b"x", b"{}\n" + b"0" * 64 + b"\n", bytes(100)])
def test_files_that_are_no_refs_are_counted(root, two, text):
    overwrite(ref_path(root, two[0]), text)
    assert items_of(root).bad == 1


def test_a_ref_under_another_name_and_a_title_that_moves_the_cursor_are_refused(root, two):
    first, second = two
    overwrite(ref_path(root, first), encode_ref(second))
    assert items_of(root).bad == 1
    import msgspec

    overwrite(ref_path(root, first), encode_ref(msgspec.structs.replace(first, title="\x1b[2J")))
    assert items_of(root).bad == 1


def test_what_is_no_regular_file_does_not_block_or_lead_elsewhere(root, two):
    first, second = two
    for path, make in (
        (ref_path(root, first), lambda p: os.mkfifo(p)),
        (ref_path(root, second), lambda p: p.symlink_to("/etc/passwd")),
    ):
        path.unlink()
        make(path)
    (root / "v1/refs" / ("e" * 64)).write_text("a file where a folder belongs")
    found = items_of(root)
    assert (found.items, found.bad) == ((), 2)
