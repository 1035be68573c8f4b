"""Pulling: verified before it is visible, in the order of every publisher, and gone on with."""

from __future__ import annotations

import os
import threading

import pytest
from support.remotes import QUICK, at, pull_one, push_all, visible
from support.stores import BLOBS, assert_intact, blob_path, flipped, manifest_of, overwrite

from vcc.cache.digest import Digest
from vcc.cache.errors import MissingArtifact, RemoteError
from vcc.cache.gate import Untrusted, default_gate
from vcc.cache.pulled import Mark, read_mark
from vcc.cache.remote.base import Absent
from vcc.cache.remote.patience import Patience
from vcc.cache.remote.pull import pull
from vcc.cache.request import encode_ref
from vcc.cache.root import opened
from vcc.cache.store import Store


def path_of(digest):
    return f"v1/cas/sha256/{str(digest)[:2]}/{digest}"


@pytest.fixture
def pushed(kind, source):
    """The URL of a remote with the artifact, and its entry."""
    url = kind.fresh()
    push_all(source, url)
    return url, next(source.entries())


def mark_of(store, entry):
    with opened(store.root, create=False) as folder:
        return read_mark(folder, entry.artifact)


def test_an_artifact_arrives_whole_and_marked(pushed, target):
    url, entry = pushed
    done = pull_one(target, url, entry)
    assert done.new
    assert done.blobs == len(BLOBS)
    assert done.received == sum(map(len, BLOBS.values()))
    assert_intact(target.root, entry)
    mark = mark_of(target, entry)
    assert (mark.url, mark.by_hand) == (url, True)
    assert visible(target) == [entry.artifact]


def test_a_second_pull_asks_for_nothing(pushed, target):
    url, entry = pushed
    pull_one(target, url, entry)
    before = mark_of(target, entry)
    done = pull_one(target, url, entry, by_hand=False)
    assert (done.new, done.received, done.blobs) == (False, 0, 0)
    assert mark_of(target, entry) == before


def test_what_was_built_here_is_not_marked_by_a_pull(pushed, source):
    url, entry = pushed
    pull_one(source, url, entry)
    assert mark_of(source, entry) is None


def test_a_pull_repairs_what_is_damaged_here(pushed, target):
    url, entry = pushed
    pull_one(target, url, entry)
    bad = Digest.of(BLOBS["piece/0.so"])
    overwrite(blob_path(target.root, bad), flipped(BLOBS["piece/0.so"], 7, 1))
    done = pull_one(target, url, entry)
    assert done.blobs == 1
    assert_intact(target.root, entry)


def test_a_blob_that_the_remote_lost_is_a_miss(kind, source, target):
    (entry,) = source.entries()
    url = kind.fresh()
    with at(url) as remote:
        remote.put(path_of(entry.id), blob_path(source.root, entry.id).read_bytes())
        remote.put(f"v1/refs/{entry.base.digest}/{entry.artifact}", encode_ref(entry))
    with pytest.raises((Absent, MissingArtifact)):
        pull_one(target, url, entry)
    assert visible(target) == []


def test_a_manifest_that_the_remote_lost_is_a_miss(kind, source, target):
    (entry,) = source.entries()
    with pytest.raises(Absent):
        pull_one(target, kind.fresh(), entry)
    assert visible(target) == []


def test_a_ref_that_leads_to_another_manifest_is_refused(source, target, tmp_path):
    """Row 134: its sum is right, what it says of the manifest is not."""
    (entry,) = source.entries()
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    import msgspec

    lie = msgspec.structs.replace(entry, title="something else")
    with pytest.raises(RemoteError, match="KEY_MISMATCH"):
        pull_one(target, url, lie)
    assert visible(target) == []


@pytest.mark.parametrize("which", ["manifest", "blob"])
def test_every_flipped_byte_is_seen(source, target, tmp_path, which):
    (entry,) = source.entries()
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    digest = entry.id if which == "manifest" else Digest.of(BLOBS["golden/0"])
    file = tmp_path / "r" / path_of(digest)
    data = file.read_bytes()
    for offset in range(0, len(data), max(1, len(data) // 60)):
        overwrite(file, flipped(data, offset, offset % 8))
        with pytest.raises(RemoteError, match="not what its digest says"):
            pull_one(target, url, entry)
        assert visible(target) == []
    overwrite(file, data)
    pull_one(target, url, entry)
    assert_intact(target.root, entry)


@pytest.mark.parametrize("change", [b"", b"x" * 100, None])
def test_a_blob_of_another_size_is_refused(source, target, tmp_path, change):
    (entry,) = source.entries()
    url = f"file://{tmp_path}/r"
    push_all(source, url)
    file = tmp_path / "r" / path_of(Digest.of(BLOBS["golden/0"]))
    overwrite(file, BLOBS["golden/0"] + b"x" if change is None else change)
    with pytest.raises(RemoteError):
        pull_one(target, url, entry)
    assert visible(target) == []


def test_the_gate_is_asked_before_any_blob(pushed, target, monkeypatch):
    url, entry = pushed

    class Closed:
        fast_check, fails_closed = False, False

        def admit(self, *args):
            raise Untrusted("no")

    with at(url) as remote:
        asked, get = [], type(remote).get

        def noted(self, path, *args, **named):
            asked.append(path)
            get(self, path, *args, **named)

        monkeypatch.setattr(type(remote), "get", noted)
        with pytest.raises(Untrusted):
            pull(target.root, remote, entry, Closed(), Patience(QUICK), by_hand=True)
    assert asked == [path_of(entry.id)]
    assert mark_of(target, entry) is None
    assert visible(target) == []


def test_what_a_miss_pulls_from_a_stranger_is_not_taken(pushed, target, monkeypatch):
    url, entry = pushed
    monkeypatch.delenv("VCC_POLICY", raising=False)
    with pytest.raises(Untrusted, match="not a trusted remote"):
        pull_one(target, url, entry, by_hand=False)
    assert visible(target) == []


def test_an_interrupted_pull_goes_on_with_what_it_had(pushed, target, monkeypatch):
    """Ctrl-C after a part of a blob: the partial is kept, hashed again, and not asked for again."""
    url, entry = pushed
    monkeypatch.setattr("vcc.cache.remote.pull.THREADS", 1)
    stop = _Interrupting("vcc.cache.remote.download.write_all", monkeypatch, after=3)
    with pytest.raises(KeyboardInterrupt):
        pull_one(target, url, entry)
    stop.undo()
    assert visible(target) == []
    done = pull_one(target, url, entry)
    assert done.received < sum(map(len, BLOBS.values()))
    assert_intact(target.root, entry)


class _Interrupting:
    """Raises KeyboardInterrupt at the n-th call of a function, after doing its work."""

    def __init__(self, name, monkeypatch, after):
        from vcc.cache import folder

        self.patch, self.left = monkeypatch, after
        self.name, self.real = name, folder.write_all
        monkeypatch.setattr(name, self)

    def __call__(self, *args):
        self.real(*args)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def undo(self):
        self.patch.setattr(self.name, self.real)


def test_two_pullers_of_one_artifact_both_have_it(pushed, target):
    url, entry = pushed
    errors = []

    def work():
        try:
            pull_one(target, url, entry)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert_intact(target.root, entry)
    assert visible(target) == [entry.artifact]


def test_artifacts_that_share_blobs_bring_them_once(kind, source, target):
    more = source.publish(manifest_of("none"), {**BLOBS, "constant/x": os.urandom(100)})
    first = next(entry for entry in source.entries() if entry != more)
    url = kind.fresh()
    push_all(source, url)
    pull_one(target, url, first)
    assert pull_one(target, url, more).blobs == 1
    assert_intact(target.root, first)


def test_a_pull_tells_of_every_blob(pushed, target):
    url, entry = pushed
    told = []
    with at(url) as remote:
        named = {"by_hand": True, "told": lambda item, state: told.append(state)}
        pull(target.root, remote, entry, default_gate(), Patience(QUICK), **named)
        pull(target.root, remote, entry, default_gate(), Patience(QUICK), **named)
    assert sorted(told) == ["done"] * 5 + ["reused"] * 5 + ["running"] * 5


def test_marks_are_read_as_they_were_written():
    mark = Mark(url="s3://b/x", when=5)
    assert (mark.url, mark.when, mark.by_hand) == ("s3://b/x", 5, False)


def test_a_store_that_cannot_be_written_is_storage_trouble(pushed, tmp_path):
    from vcc.cache.errors import StorageError

    url, entry = pushed
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        pull_one(Store.open(tmp_path / "file" / "store"), url, entry)
