"""The index of lists: lost, damaged, foreign or late, and a list is right all the same."""

from __future__ import annotations

import os

import msgspec
import pytest
import xxhash
from support.crashes import ended_at
from support.many import fill
from support.stores import BLOBS, manifest_of, quiet, ref_path

from vcc.cache.care import index as indexing
from vcc.cache.care.check import check
from vcc.cache.care.index import MAGIC, Index
from vcc.cache.care.prune import items_of
from vcc.cache.care.sweep import collect
from vcc.cache.root import opened

COUNT, OLD_NS = 60, 10**10


@pytest.fixture
def listed(root, monkeypatch):
    """A store whose lists go by an index: its folders changed long before that was written."""
    monkeypatch.setattr(indexing, "WORTH", 10)
    fill(root, COUNT, 7)
    for folder in (root / "v1/refs").iterdir():
        os.utime(folder, ns=(OLD_NS, OLD_NS))
    assert len(items_of(root, index=True).items) == COUNT
    assert path(root).exists()
    return root


def path(root):
    return root / "v1/notes/index"


def same(root) -> bool:
    """Whether a list by the index is what the refs say now, but for the moment of reading."""
    by_index, read = items_of(root, index=True), items_of(root)
    plain = [[msgspec.structs.replace(i, now=0.0) for i in x.items] for x in (by_index, read)]
    return plain[0] == plain[1] and by_index.bad == read.bad


def opened_refs(root, monkeypatch) -> int:
    """How many folders of refs a list reads."""
    read, real = [], indexing.read_base

    def counted(refs, base):
        read.append(base)
        return real(refs, base)

    with monkeypatch.context() as patch:
        patch.setattr(indexing, "read_base", counted)
        items_of(root, index=True)
    return len(read)


def test_a_list_by_the_index_opens_no_ref_and_says_the_same(listed, monkeypatch):
    assert opened_refs(listed, monkeypatch) == 0
    assert same(listed)


def test_a_small_store_has_no_index(root):
    quiet(root).publish(manifest_of(), BLOBS)
    assert len(items_of(root, index=True).items) == 1
    assert not path(root).exists()


def test_new_and_removed_artifacts_are_seen_at_once(listed):
    (gone, *_) = items_of(listed).items
    os.unlink(listed / "v1/refs" / gone.base / gone.artifact)
    assert same(listed)
    quiet(listed).publish(manifest_of(), BLOBS)
    assert same(listed)
    assert len(items_of(listed, index=True).items) == COUNT


def test_a_change_that_could_hide_in_the_clock_is_looked_for(listed, monkeypatch):
    """A folder that changed just before the index was written may have changed after it too."""
    base = next((listed / "v1/refs").iterdir())
    os.utime(base)
    path(listed).unlink()
    items_of(listed, index=True)
    assert opened_refs(listed, monkeypatch) == 1


def damaged(data: bytes) -> dict[str, bytes | None]:
    other = msgspec.msgpack.encode([1, "no bases"])
    body = data[len(MAGIC) + 16 :]
    return {
        "deleted": None,
        "empty": b"",
        "cut": data[: len(data) // 2],
        "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        "later version": b"vcc-index 4\n" + data[len(MAGIC) :],
        "of another form": MAGIC + xxhash.xxh3_128_digest(other) + other,
        "sum of something else": MAGIC + xxhash.xxh3_128_digest(b"") + body,
    }


@pytest.mark.parametrize("kind", damaged(bytes(100)))
def test_what_is_no_index_is_made_anew(listed, monkeypatch, kind):
    data = damaged(path(listed).read_bytes())[kind]
    path(listed).unlink()
    if data is not None:
        path(listed).write_bytes(data)
    assert same(listed)
    assert opened_refs(listed, monkeypatch) == 0
    assert same(listed)


def test_an_index_that_cannot_be_read_or_written_is_done_without(listed, monkeypatch):
    path(listed).unlink()
    path(listed).mkdir()
    assert same(listed)
    path(listed).rmdir()
    path(listed).symlink_to("/etc/passwd")
    assert same(listed)
    assert opened_refs(listed, monkeypatch) == 0  # the link was replaced, not followed


def test_an_index_of_another_store_says_nothing_about_this_one(listed, root, fast_tmp):
    other = fast_tmp / "other"
    fill(other, COUNT, 3)
    os.replace(path(listed), other / "v1" / "index")
    (other / "v1/notes").mkdir(mode=0o700, exist_ok=True)
    os.rename(other / "v1/index", other / "v1/notes/index")
    assert same(other)


def test_an_index_from_the_future_is_no_reason_to_believe_it(listed):
    with opened(listed, create=False) as store:
        index = indexing.load_index(store)
        late = tuple(msgspec.structs.replace(base, changed=2**62) for base in index.bases)
        assert late
        indexing.save_index(store, Index(2**63, late))
    assert same(listed)


def test_damaged_refs_are_counted_each_time(listed):
    (item, *_) = items_of(listed).items
    ref = listed / "v1/refs" / item.base / item.artifact
    ref.unlink()
    ref.write_bytes(b"damaged")
    for _ in range(3):
        assert items_of(listed, index=True).bad == 1
        assert same(listed)


def test_killed_at_any_step_of_writing_it_the_next_list_is_right(listed):
    for call in range(1, 12):
        path(listed).unlink(missing_ok=True)
        ended_at(call, lambda: items_of(listed, index=True))
        assert same(listed)
    collect(listed, grace_s=0)
    assert os.listdir(listed / "v1/tmp") == []
    assert check(listed).findings == []


def test_what_removes_reads_refs_and_not_the_index(listed):
    """A row that is made up can mislead a list, never a removal."""
    with opened(listed, create=False) as store:
        index = indexing.load_index(store)
        made_up = tuple(msgspec.structs.replace(base, rows=()) for base in index.bases)
        indexing.save_index(store, Index(index.read, made_up))
    assert items_of(listed, index=True).items == ()
    assert len(items_of(listed).items) == COUNT


def test_refs_that_were_replaced_are_read_again(listed):
    entry = quiet(listed).publish(manifest_of(), BLOBS)
    items_of(listed, index=True)
    ref = ref_path(listed, entry)
    data = ref.read_bytes()
    ref.unlink()
    assert same(listed)
    ref.write_bytes(data)
    assert same(listed)
