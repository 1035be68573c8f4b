"""Locks: who holds them is said, those that nobody holds go, live ones only by force."""

from __future__ import annotations

import subprocess
import sys

from vcc.cache.care import locks as locking
from vcc.cache.care.locks import State
from vcc.cache.care.sweep import collect
from vcc.cache.care.unlock import unlock
from vcc.cache.digest import Digest
from vcc.cache.single_flight import single_flight

DIGEST = Digest.of(b"what is built")
HOLD = """
import sys
from pathlib import Path
from vcc.cache.digest import Digest
from vcc.cache.single_flight import single_flight
with single_flight(Path(sys.argv[1]), Digest.of(b"what is built"), "compiling demo"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def holder(root):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_store_without_locks_has_none(root):
    assert unlock(root).removed == []
    assert not root.exists()


def test_a_held_lock_is_shown_with_its_holder_and_stays(root, later):
    process = holder(root)
    done = unlock(root)
    (kept,) = done.kept
    assert (done.removed, kept.state) == ([], State.HELD)
    assert (kept.holder.pid, kept.holder.what) == (process.pid, "compiling demo")
    later(2 * 3600)
    assert "stale locks" not in collect(root).counts()
    process.communicate("")


def test_the_lock_of_a_build_that_is_over_is_not_spoken_of(root, later):
    process = holder(root)
    process.communicate("")
    assert (unlock(root).removed, unlock(root, force=True).removed) == ([], [])
    assert [path.suffix for path in (root / "v1/locks").iterdir()] == [".lock"]
    later(2 * 3600)
    assert collect(root).counts()["stale locks"][0] == 1


def test_a_process_that_goes_on_after_its_build_is_no_dead_holder(root):
    """Its announcement may be left where the folder could not be written any more."""
    with single_flight(root, DIGEST, "compiling demo"):
        announced = (root / f"v1/locks/{DIGEST}.holder").read_bytes()
    (root / f"v1/locks/{DIGEST}.holder").write_bytes(announced)
    assert (unlock(root).removed, unlock(root).kept) == ([], [])


def test_the_lock_of_a_killed_process_goes(root, later):
    process = holder(root)
    process.kill()
    process.communicate()
    assert [lock.state for lock in unlock(root, dry_run=True).removed] == [State.FREE]
    assert len(list((root / "v1/locks").iterdir())) == 2
    later(2 * 3600)
    assert collect(root, dry_run=True).counts()["stale locks"][0] == 2
    assert len(unlock(root).removed) == 1
    assert list((root / "v1/locks").iterdir()) == []


def test_a_held_lock_goes_by_force_and_builds_go_on(root):
    process = holder(root)
    assert unlock(root, force=True).removed[0].state is State.HELD
    with single_flight(root, DIGEST, "beside it", wait_s=5) as flight:
        assert flight.locked
    process.communicate("")


def test_where_locks_do_not_work_the_holder_is_asked(root, monkeypatch):
    def flock(fd, operation):
        raise OSError(37, "No locks available")

    process = holder(root)
    monkeypatch.setattr(locking.fcntl, "flock", flock)
    assert [lock.state for lock in unlock(root).kept] == [State.HELD]
    process.kill()
    process.communicate()
    assert [lock.state for lock in unlock(root).removed] == [State.FREE]


def test_where_neither_lock_nor_holder_can_be_asked_the_lock_stays(root, monkeypatch):
    def flock(fd, operation):
        raise OSError(95, "Operation not supported")

    process = holder(root)
    process.communicate("")
    monkeypatch.setattr(locking.fcntl, "flock", flock)
    assert [lock.state for lock in unlock(root).kept] == [State.UNKNOWN]
    assert len(unlock(root, force=True).removed) == 1
