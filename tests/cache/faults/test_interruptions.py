"""Interrupted work that is no kill (rows 7, 8, 14, 16), and what a restart finds."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest
from support.stores import BASE, BLOBS, assert_intact, child, exit_of, manifest_of, quiet

from vcc.cache import publish as publishing
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest
from vcc.cache.process import Process
from vcc.cache.single_flight import single_flight

NEW = {"program": b"new program"}
KEY = Digest.of(b"key")


@pytest.fixture
def old(root):
    return quiet(root).publish(manifest_of("none", created=1), BLOBS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, ValueError])
def test_an_exception_between_the_blobs_and_the_ref_publishes_nothing(
    root, old, monkeypatch, error
):
    """Row 16; rows 7 and 8 arrive as exceptions too (`cli/main.py`)."""

    def stop(*rest):
        raise error("now")

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish_ref", stop)
        with pytest.raises(error):
            quiet(root).publish(manifest_of(), NEW)
    assert list((root / "v1/tmp").iterdir()) == []
    assert quiet(root).find(BASE) == (old,)
    assert_intact(root, quiet(root).publish(manifest_of(), NEW), NEW)


def test_a_signal_in_the_middle_of_a_build_frees_its_turn(root):
    """Row 8: what SIGTERM becomes leaves no lock that blocks and no temporary folder."""

    def work():
        def end(*rest):
            raise SystemExit(143)

        signal.signal(signal.SIGTERM, end)
        with suppress(SystemExit), single_flight(root, KEY, "compiling"):
            quiet(root).publish(manifest_of(), NEW)
            time.sleep(30)

    pid = child(work)
    while not quiet(root).find(BASE):
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
    assert exit_of(pid) == 0
    with single_flight(root, KEY, "compiling", wait_s=0) as flight:
        assert flight.locked
    assert list((root / "v1/tmp").iterdir()) == []


def test_after_a_restart_stale_locks_and_temporary_folders_stop_nobody(root, old):
    """Row 14: the lock file and its note are there, whoever made them is not."""
    own = Process.own()
    gone = f"{own.host}.{'0' * 32}.{os.getpid()}-1-1.{'ab' * 16}"
    (root / "v1/tmp" / gone).mkdir(mode=0o700)
    (root / "v1/tmp" / gone / "half").write_bytes(bytes(1000))
    locks = root / "v1/locks"
    locks.mkdir(mode=0o700)
    (locks / f"{KEY}.lock").touch(0o600)
    (locks / f"{KEY}.holder").write_bytes(
        b'{"host":"here","pid":1,"since":1,"what":"compiling before the restart"}'
    )
    start = time.monotonic()
    with single_flight(root, KEY, "compiling", wait_s=0) as flight:
        assert (flight.locked, flight.waited) == (True, False)
        assert_intact(root, quiet(root).publish(manifest_of(), NEW), NEW)
    assert time.monotonic() - start < 1
    assert_intact(root, old)
    collect(root)
    assert [path.name for path in (root / "v1/tmp").iterdir()] == [gone]  # perhaps another host's
    collect(root, grace_s=0)
    assert list((root / "v1/tmp").iterdir()) == []
    assert_intact(root, old)


@pytest.mark.parametrize("clock", [0.0, -5.0, 1e6, 4e9], ids=str)
def test_a_clock_that_is_wrong_loses_nothing(root, old, monkeypatch, clock):
    """Row 83 for publishing and look-ups; ages and collections are in `tests/cache/care`."""
    monkeypatch.setattr(time, "time", lambda: clock)
    entry = quiet(root).publish(manifest_of(created=0), NEW)
    assert entry.created >= 0
    assert set(quiet(root).find(BASE)) == {old, entry}
    assert_intact(root, old)
    assert_intact(root, entry, NEW)
