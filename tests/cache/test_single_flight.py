"""Single flight: one builds, others wait within bounds; broken locks never block anybody."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time

import pytest
from support.stores import BASE, BLOBS, assert_intact, child, exit_of, manifest_of

from vcc.cache.digest import Digest
from vcc.cache.errors import Exit, LockTimeout
from vcc.cache.single_flight import Flight, single_flight
from vcc.cache.store import Store

KEY = Digest.of(b"key")


def hold(root, seconds: float):
    with single_flight(root, KEY, "compiling demo") as flight:
        assert flight.locked
        time.sleep(seconds)


def started(root, seconds: float) -> int:
    """A child that holds the lock by the time this returns."""
    pid = child(lambda: hold(root, seconds))
    deadline = time.monotonic() + 20
    while not (root / f"v1/locks/{KEY}.holder").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return pid


def test_the_turn_is_free_again_after_use(tmp_path):
    for _ in range(2):
        with single_flight(tmp_path / "store", KEY, "compiling") as flight:
            assert flight == Flight(locked=True, waited=False)


def test_a_waiter_gets_the_turn_and_knows_that_it_waited(tmp_path):
    root = tmp_path / "store"
    pid = started(root, 0.4)
    seen = []
    with single_flight(
        root, KEY, "compiling", wait_s=20, waiting=lambda *args: seen.append(args)
    ) as flight:
        assert flight == Flight(locked=True, waited=True)
    assert exit_of(pid) == 0
    holder, waited_s = seen[0]
    assert (holder.pid, holder.what, holder.host) == (pid, "compiling demo", os.uname().nodename)
    assert waited_s < 1


def test_a_timeout_is_not_a_miss_and_names_the_holder(tmp_path):
    root = tmp_path / "store"
    pid = started(root, 30)
    start = time.monotonic()
    with pytest.raises(LockTimeout, match=f"process {pid} on .*compiling demo") as caught:
        single_flight(root, KEY, "compiling", wait_s=0.3).__enter__()
    assert 0.3 <= time.monotonic() - start < 5
    assert caught.value.exit == Exit.LOCK
    os.kill(pid, signal.SIGKILL)
    exit_of(pid)


def test_a_killed_holder_is_replaced_at_once(tmp_path):
    root = tmp_path / "store"
    pid = started(root, 30)
    os.kill(pid, signal.SIGKILL)
    assert exit_of(pid) == -signal.SIGKILL
    start = time.monotonic()
    with single_flight(root, KEY, "compiling", wait_s=20) as flight:
        assert flight.locked
    assert time.monotonic() - start < 1


def test_other_keys_do_not_wait(tmp_path):
    root = tmp_path / "store"
    pid = started(root, 30)
    with single_flight(root, Digest.of(b"other"), "compiling", wait_s=0) as flight:
        assert flight.locked
    os.kill(pid, signal.SIGKILL)
    exit_of(pid)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_where_locks_fail_the_caller_goes_on_at_once(tmp_path, monkeypatch, code):
    """Row 33: no lock here is not the same as somebody has the lock."""

    def fail(fd, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    start = time.monotonic()
    with single_flight(tmp_path / "store", KEY, "compiling") as flight:
        assert not flight.locked
        assert os.strerror(code) in flight.reason
    assert time.monotonic() - start < 1


def test_a_lock_file_that_was_removed_while_it_was_held_is_not_mistaken_for_the_new_one(tmp_path):
    root = tmp_path / "store"
    pid = started(root, 30)
    (root / f"v1/locks/{KEY}.lock").unlink()
    with single_flight(root, KEY, "compiling", wait_s=0) as flight:
        assert flight.locked
        with pytest.raises(LockTimeout):
            single_flight(root, KEY, "compiling", wait_s=0).__enter__()
    os.kill(pid, signal.SIGKILL)
    exit_of(pid)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder"])
def test_what_is_no_file_in_the_place_of_a_lock_costs_the_lock_only(tmp_path, kind):
    root = tmp_path / "store"
    (tmp_path / "victim").touch()
    Store.open(root).publish(manifest_of(), BLOBS)
    (root / "v1/locks").mkdir(mode=0o700)
    path = root / f"v1/locks/{KEY}.lock"
    {
        "symlink": lambda: path.symlink_to(tmp_path / "victim"),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with single_flight(root, KEY, "compiling", wait_s=0.2) as flight:
        assert flight.locked == (kind == "fifo")


def test_on_a_store_that_cannot_be_written_the_caller_goes_on(open_tmp):
    def work():
        (open_tmp / "store").mkdir()
        (open_tmp / "store").chmod(0o500)
        with single_flight(open_tmp / "store", KEY, "compiling") as flight:
            assert not flight.locked
            assert "Permission denied" in flight.reason

    assert exit_of(child(work, uid=65534)) == 0


def test_an_error_inside_passes_through_and_frees_the_turn(tmp_path):
    root = tmp_path / "store"
    context = single_flight(root, KEY, "compiling")
    context.__enter__()
    assert not context.__exit__(ValueError, ValueError("inside"), None)
    with single_flight(root, KEY, "compiling", wait_s=0) as flight:
        assert not flight.waited


@pytest.mark.parametrize("data", [b"", b"junk", b"{}", b"[1]", b"x" * 10_000])
def test_a_damaged_note_of_the_holder_is_only_a_missing_name(tmp_path, data):
    root = tmp_path / "store"
    pid = started(root, 30)
    (root / f"v1/locks/{KEY}.holder").write_bytes(data)
    with pytest.raises(LockTimeout, match="holder is unknown"):
        single_flight(root, KEY, "compiling", wait_s=0).__enter__()
    os.kill(pid, signal.SIGKILL)
    exit_of(pid)


def build_unless_there(root, compiles):
    store = Store.open(root)
    with single_flight(root, BASE.digest, "compiling", wait_s=60):
        if not store.find(BASE):
            os.write(compiles, b"x")
            time.sleep(0.05)
            store.publish(manifest_of(), BLOBS)
    assert_intact(root, *store.find(BASE))


@pytest.mark.parametrize("broken", [False, True])
def test_32_processes_compile_once_and_with_broken_locks_all_are_right(
    tmp_path, monkeypatch, broken
):
    """Rows 34 and 67: a lock that excludes nobody costs builds, never a torn entry."""
    if broken:
        monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    reader, writer = os.pipe()
    root = tmp_path / "store"
    pids = [child(lambda: build_unless_there(root, writer)) for _ in range(32)]
    assert [exit_of(pid) for pid in pids] == [0] * 32
    os.close(writer)
    compiles = len(os.read(reader, 100))
    os.close(reader)
    assert 1 <= compiles <= (32 if broken else 1)
    (entry,) = Store.open(root).find(BASE)
    assert_intact(root, entry)
    assert list((root / "v1/tmp").iterdir()) == []


def test_32_processes_of_32_keys_do_not_wait_for_each_other(tmp_path):
    """Row 68."""
    root = tmp_path / "store"

    def work(mode):
        with single_flight(root, Digest.of(mode.encode()), "compiling", wait_s=0) as flight:
            assert flight.locked
            Store.open(root).publish(manifest_of(mode), {"program": mode.encode()})

    pids = [child(lambda mode=f"m{n}": work(mode)) for n in range(32)]
    assert [exit_of(pid) for pid in pids] == [0] * 32
    store = Store.open(root)
    for n in range(32):
        (entry,) = store.find(BASE, {"mode": f"m{n}"})
        assert store.load(entry).read_all() == {"program": f"m{n}".encode()}


def test_a_waiter_takes_over_from_a_killed_holder_within_a_second(tmp_path):
    """Row 69: the waiter is already waiting when the holder dies."""
    root = tmp_path / "store"
    pid = started(root, 30)
    reader, writer = os.pipe()

    def wait():
        with single_flight(root, KEY, "compiling", wait_s=20) as flight:
            os.write(writer, b"x")
            assert flight == Flight(locked=True, waited=True)

    waiter = child(wait)
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    start = time.monotonic()
    assert os.read(reader, 1) == b"x"
    assert time.monotonic() - start < 1
    assert (exit_of(pid), exit_of(waiter)) == (-signal.SIGKILL, 0)


def test_past_a_stopped_holder_the_waiter_builds_and_both_publish(tmp_path):
    """Row 70: SIGSTOP freezes the holder in the middle; the deadline frees the waiter."""
    root = tmp_path / "store"
    pid = child(lambda: slow_build(root))
    while not (root / f"v1/locks/{KEY}.holder").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LockTimeout, match=f"process {pid} on"):
        single_flight(root, KEY, "compiling", wait_s=0.5).__enter__()
    mine = Store.open(root).publish(manifest_of("full", created=2), BLOBS)
    assert_intact(root, mine)
    os.kill(pid, signal.SIGCONT)
    assert exit_of(pid) == 0
    assert [entry.created for entry in Store.open(root).find(BASE)] == [2, 1]
    for entry in Store.open(root).find(BASE):
        assert_intact(root, entry)


def slow_build(root):
    with single_flight(root, KEY, "compiling demo"):
        time.sleep(0.2)
        Store.open(root).publish(manifest_of("full", created=1), BLOBS)
