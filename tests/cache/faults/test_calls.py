"""System calls that fail, stop short or answer late (rows 21 to 35, 81, 82), one kind at a time."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import time
from pathlib import Path

import pytest
from support.kill_matrix import CannotTrace, traced
from support.stores import (
    BASE,
    BLOBS,
    assert_intact,
    blob_path,
    child,
    exit_of,
    manifest_of,
    quiet,
    ref_path,
)

from vcc.cache.blob import Damaged
from vcc.cache.digest import Digest
from vcc.cache.errors import StorageError
from vcc.cache.single_flight import single_flight

NEW = {"program": b"new program", "piece/0.so": b"\x7fELF" + bytes(5000)}
KEY = Digest.of(b"key")


@pytest.fixture
def old(root):
    return quiet(root).publish(manifest_of("none", created=1), BLOBS)


def publish_new(root: Path):
    return quiet(root).publish(manifest_of(), NEW)


def under_strace(work, *options: str) -> int:
    try:
        return traced(work, list(options))[0]
    except CannotTrace as error:
        pytest.skip(str(error))


def failing(monkeypatch, name: str, code: int, when) -> list[int]:
    """Let `os.<name>` fail on those calls for whose number `when` is true; what failed."""
    real, count, failed = getattr(os, name), itertools.count(1), []

    def call(*rest, **more):
        number = next(count)
        if when(number):
            failed.append(number)
            if name == "close":  # the descriptor is closed all the same, as on Linux
                real(*rest, **more)
            raise OSError(code, os.strerror(code))
        return real(*rest, **more)

    monkeypatch.setattr(os, name, call)
    return failed


# Sync and close (rows 22, 23)


def test_a_sync_that_fails_is_never_tried_again_and_nothing_is_published(root, old, monkeypatch):
    """Row 22: a second fsync says yes although the bytes are lost."""
    for number in itertools.count(1):
        with monkeypatch.context() as patch:
            failed = failing(patch, "fsync", errno.EIO, lambda n, number=number: n == number)
            told = hint_of(lambda: publish_new(root))
        if not failed:
            break
        assert "device reports a failure" in told
        assert quiet(root).find(BASE, {"mode": "full"}) == ()
        assert_intact(root, old)
    assert number > 10
    assert_intact(root, *quiet(root).find(BASE, {"mode": "full"}), NEW)


def hint_of(attempt) -> str:
    """The hint of the storage error that `attempt` ends with; empty when it does not."""
    try:
        attempt()
    except StorageError as error:
        return error.hint
    return ""


def test_an_error_at_close_is_an_error_and_the_store_is_whole(root, old, monkeypatch):
    """Row 23: a network file system may tell at close that there is no room."""
    outcomes = set()
    for number in range(1, 60):
        with monkeypatch.context() as patch:
            failing(patch, "close", errno.EIO, lambda n, number=number: n == number)
            try:
                publish_new(root)
                outcomes.add("published")
            except StorageError:
                outcomes.add("refused")
        assert_intact(root, old)
        for entry in quiet(root).find(BASE, {"mode": "full"}):
            assert_intact(root, entry, NEW)
    assert "refused" in outcomes


# Short and interrupted calls (row 25)


def test_short_reads_and_writes_are_continued(root, monkeypatch):
    read, write = os.read, os.write
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 13)))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:11]))
    assert_intact(root, publish_new(root), NEW)


def test_a_storm_of_signals_changes_nothing(root):
    def work():
        rang = []
        signal.signal(signal.SIGALRM, lambda *rest: rang.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        until = time.monotonic() + 1.0
        for number in itertools.count(1):
            with single_flight(root, KEY, "compiling"):
                entry = quiet(root).publish(manifest_of(created=number % 5 + 1), NEW)
            assert quiet(root).load(entry).read_all() == NEW
            if time.monotonic() > until:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(rang) > 100

    assert exit_of(child(work)) == 0


# Descriptors (row 26)


@pytest.mark.parametrize("spare", range(8))
def test_without_descriptors_reading_and_writing_are_storage_errors(root, old, spare):
    def work():
        used = [int(name) for name in os.listdir("/proc/self/fd")]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(used) + 1 + spare, 4096))
        taken = []
        for number in range(max(used)):  # holes below would be given out again
            if number not in used:
                taken.append(os.dup2(0, number))
        for attempt in (lambda: publish_new(root), lambda: quiet(root).load(old).read_all()):
            assert hint_of(attempt) in ("", "Raise the limit of open files (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        assert_intact(root, old)
        assert_intact(root, publish_new(root), NEW)

    assert exit_of(child(work)) == 0


# Read errors (rows 21, 30), by the kernel


def test_a_disk_that_cannot_read_a_blob_is_damage(root, old):
    """Row 21: reported, set aside, a miss from then on."""
    path = blob_path(root, Digest.of(BLOBS["piece/0.so"]))

    def work():
        store = quiet(root)
        with pytest.raises(Damaged, match="cannot be read") as caught:
            store.load(old).read_all()
        store.quarantine(old, caught.value)
        assert store.find(BASE) == ()

    fault = ("-P", str(path), "-e", "trace=read", "-e", "inject=read:error=EIO")
    assert under_strace(work, *fault) == 0
    assert not path.exists()


def test_a_stale_handle_is_opened_again_once(root, old):
    """Row 30: a network file system has replaced the file under its name."""
    path = blob_path(root, Digest.of(BLOBS["piece/0.so"]))
    fault = ("-P", str(path), "-e", "trace=read", "-e", "inject=read:error=ESTALE:when=1")
    assert under_strace(lambda: assert_intact(root, old), *fault) == 0


# Locks that do not work (rows 33, 34), by the kernel


@pytest.mark.parametrize("code", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_flock_that_fails_costs_the_lock_only(root, old, code):
    def work():
        start = time.monotonic()
        with single_flight(root, KEY, "compiling") as flight:
            assert not flight.locked
            assert flight.reason
            assert_intact(root, publish_new(root), NEW)
        assert time.monotonic() - start < 5

    assert under_strace(work, "-e", "trace=flock", "-e", f"inject=flock:error={code}") == 0
    assert_intact(root, old)


def test_flock_that_excludes_nobody_lets_everybody_build(root, old):
    """Row 34, as Lustre without `-o flock`; 32 processes at once are in test_single_flight.py."""

    def work():
        with single_flight(root, KEY, "one") as one, single_flight(root, KEY, "two") as two:
            assert one.locked
            assert two.locked
            assert_intact(root, publish_new(root), NEW)

    assert under_strace(work, "-e", "trace=flock", "-e", "inject=flock:retval=0") == 0


# Slow storage (row 35)


def test_a_slow_disk_is_slow_and_no_error(root, old):
    def work():
        start = time.monotonic()
        assert_intact(root, publish_new(root), NEW)
        assert time.monotonic() - start > 1.0

    fault = ("-e", "trace=fsync", "-e", "inject=fsync:delay_enter=100000")
    assert under_strace(work, *fault) == 0
    assert_intact(root, old)


# Late and torn views of a network file system (rows 81, 82), emulated: this kernel has no client


def test_who_loses_a_race_and_does_not_see_the_winners_file_uses_its_own(root, monkeypatch):
    """Row 81: link says that the name is taken, but opening it still finds nothing."""
    real = os.link

    def taken(source, name, **more):
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", taken)
    entry = publish_new(root)
    monkeypatch.setattr(os, "link", real)
    assert_intact(root, entry, NEW)


def test_listings_that_repeat_or_miss_names_make_no_wrong_entries(root, old, monkeypatch):
    """Row 82."""
    new = publish_new(root)
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda fd: real(fd) * 2)
    assert quiet(root).find(BASE) == (new, old)
    assert list(quiet(root).entries()) == [new, old]
    monkeypatch.setattr(os, "listdir", lambda fd: sorted(real(fd))[1:])
    assert set(quiet(root).find(BASE)) <= {new, old}
    monkeypatch.undo()
    assert ref_path(root, new).exists()
