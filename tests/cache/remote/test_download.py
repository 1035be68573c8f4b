"""Downloads go on where they ended, whoever left the beginning and whatever is in it."""

from __future__ import annotations

import os
import threading

import pytest
from support.remotes import QUICK

from vcc.cache.digest import Digest
from vcc.cache.errors import RemoteError
from vcc.cache.publish import own_folder
from vcc.cache.remote.base import Blob, Passing
from vcc.cache.remote.download import Download, Stopped
from vcc.cache.remote.patience import Patience
from vcc.cache.root import opened

DATA = os.urandom(300_000)
BLOB = Blob(Digest.of(DATA), len(DATA))


class Fake:
    """A remote of one blob that is cut off after some bytes, each time it is asked."""

    url, public, is_registry = "fake://", False, False

    def __init__(self, data=DATA, cuts=()):
        self.data, self.cuts, self.starts = data, list(cuts), []

    def get(self, path, sink, *, limit, start=0):
        self.starts.append(start)
        end = start + self.cuts.pop(0) if self.cuts else len(self.data)
        for at in range(start, min(end, len(self.data)), 10_000):
            sink(self.data[at : min(at + 10_000, end)])
        if end < len(self.data):
            raise Passing("cut off")


@pytest.fixture
def store(root):
    with opened(root, create=True) as folder:
        yield folder


def run(store, remote, blob=BLOB, stop=None):
    """The bytes of the download."""
    with own_folder(store) as own:
        task = Download(remote, blob, store, own, Patience(QUICK), stop or threading.Event())
        task.run()
        return own.read(task.name, limit=1 << 30)


def partials(root):
    place = root / "v1" / "tmp" / "partial"
    return sorted(one.name for one in place.iterdir()) if place.exists() else []


def test_a_whole_body_is_one_request(store):
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts == [0]


def test_each_attempt_begins_where_the_last_one_ended(store):
    remote = Fake(cuts=[100_000, 50_000])
    assert run(store, remote) == DATA
    assert remote.starts == [0, 100_000, 150_000]


def test_a_failed_download_leaves_its_part_for_the_next(store, root):
    with pytest.raises(RemoteError):
        run(store, Fake(cuts=[10_000, 10_000, 10_000]))
    assert partials(root) == [f"{BLOB.digest}.part"]
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts == [30_000]
    assert partials(root) == []


def test_the_part_of_a_killed_process_is_found_too(store, root):
    dead = root / "v1" / "tmp" / "host.boot.1.x"
    dead.mkdir(parents=True, mode=0o700)
    (dead / f"{BLOB.digest}.part").write_bytes(DATA[:123_456])
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts == [123_456]


def test_a_complete_part_needs_no_request(store, root):
    place = root / "v1" / "tmp" / "partial"
    place.mkdir(parents=True, mode=0o700)
    (place / f"{BLOB.digest}.part").write_bytes(DATA)
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts == []


@pytest.mark.parametrize("part", [b"x" * 1000, b"x" * len(DATA), b"x" * (len(DATA) + 1), b""])
def test_a_part_of_other_bytes_costs_a_fresh_start_and_nothing_else(store, root, part):
    place = root / "v1" / "tmp" / "partial"
    place.mkdir(parents=True, mode=0o700)
    (place / f"{BLOB.digest}.part").write_bytes(part)
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts[-1] == 0
    assert partials(root) == []


@pytest.mark.parametrize("plant", ["symlink", "fifo", "folder"])
def test_a_part_that_is_no_file_is_passed_over(store, root, tmp_path, plant):
    place = root / "v1" / "tmp" / "partial"
    place.mkdir(parents=True, mode=0o700)
    name = place / f"{BLOB.digest}.part"
    (tmp_path / "other").write_bytes(DATA[:100])
    made = {
        "symlink": lambda: name.symlink_to(tmp_path / "other"),
        "fifo": lambda: os.mkfifo(name),
        "folder": name.mkdir,
    }
    made[plant]()
    remote = Fake()
    assert run(store, remote) == DATA
    assert remote.starts == [0]


def test_wrong_bytes_name_the_blob_and_are_not_kept(store, root):
    with pytest.raises(RemoteError, match=BLOB.digest.short):
        run(store, Fake(data=bytes(len(DATA))))
    assert partials(root) == []


def test_a_body_that_is_too_short_is_not_taken_for_the_whole(store):
    class Short(Fake):
        def get(self, path, sink, *, limit, start=0):
            self.starts.append(start)
            sink(b"x" * 10)

    remote = Short()
    with pytest.raises(RemoteError, match="30 bytes of 300000 came"):
        run(store, remote)
    assert remote.starts == [0, 10, 20]


def test_a_task_that_is_given_up_stops_at_the_next_bytes(store, root):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        run(store, Fake(), stop=stop)


def test_an_empty_blob_is_right(store):
    empty = Blob(Digest.of(b""), 0)
    assert run(store, Fake(data=b""), empty) == b""
