"""Calm: what somebody has in their hands is not lost, and what is lost is told from it."""

from __future__ import annotations

import os
import threading
import time

import pytest
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

from vcc.cache import publish as publishing
from vcc.cache.care import calm as module
from vcc.cache.care import repair as repairing
from vcc.cache.care import sweep as sweeping
from vcc.cache.care.calm import CALM, at_work, calm, calm_wanted
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.digest import Digest
from vcc.cache.process import Process
from vcc.cache.root import opened

DEAD = f"{Process.own().host}.{Process.own().boot}.4194305-1-0.{'a' * 32}"
BEFORE = f"{Process.own().host}.{'f' * 32}.1-1-0.{'a' * 32}"
ELSEWHERE = f"another-host.{'0' * 32}.1-1-1.{'a' * 32}"
PROGRAM = Digest.of(BLOBS["program"])


@pytest.fixture
def hasty(monkeypatch):
    """A check that looks once, and a calm that is not waited for long."""
    looks_once(monkeypatch)
    monkeypatch.setattr(module, "WAIT_S", 0.1)


@pytest.fixture
def unhurried(monkeypatch):
    """A check that looks once: whoever is slow is still at work then."""
    looks_once(monkeypatch)


def looks_once(monkeypatch):
    for name, value in (("PAUSES_S", ()), ("PATIENCE_S", 0.0), ("LAST_LOOK_S", 0.0)):
        monkeypatch.setattr(f"vcc.cache.care.check.{name}", value)


def in_the_hands_of(root, monkeypatch, begin, *, waits=True):
    """Repair while `begin`, run in a thread, is stopped with a blob out of its place."""
    missing, go_on = threading.Event(), threading.Event()

    def stopped():
        missing.set()
        assert go_on.wait(20)

    real = repairing.calm

    def waited_for(store):
        threading.Timer(0.2, go_on.set).start()
        return real(store)

    monkeypatch.setattr(repairing, "calm", waited_for)
    thread = threading.Thread(target=begin, args=(stopped,))
    thread.start()
    assert missing.wait(20)
    assert not blob_path(root, PROGRAM).exists()
    done = repair(root)
    assert go_on.is_set() == waits
    go_on.set()
    thread.join()
    return done


def test_a_repair_waits_for_a_publisher_whose_blob_was_taken(root, monkeypatch, unhurried):
    """However slow it is between its ref and its last look."""
    published = []

    def begin(stopped):
        real = publishing.put_back

        def late(*args):
            blob_path(root, PROGRAM).unlink()  # a collection took it before it saw the ref
            stopped()
            real(*args)

        monkeypatch.setattr(publishing, "put_back", late)
        published.append(quiet(root).publish(manifest_of(), BLOBS))

    done = in_the_hands_of(root, monkeypatch, begin)
    assert (done.aside, done.busy, done.checked.findings) == ([], (), [])
    assert_intact(root, *published)


def test_a_repair_finds_what_a_collection_has_in_its_hands(root, monkeypatch, unhurried):
    entry = quiet(root).publish(manifest_of(), BLOBS)
    ref, text = ref_path(root, entry), ref_path(root, entry).read_bytes()

    def begin(stopped):
        real = sweeping._put_back

        def late(*args):
            ref.write_bytes(text)  # published while the blobs are out of their places
            stopped()
            return real(*args)

        monkeypatch.setattr(sweeping, "_put_back", late)
        collect(root, grace_s=0)

    ref.unlink()
    done = in_the_hands_of(root, monkeypatch, begin, waits=False)
    assert (done.aside, done.busy) == ([], ())
    assert_intact(root, entry)


def test_what_is_lost_in_a_calm_store_is_taken_out_of_use(root, two, unhurried):
    first, second = two
    blob_path(root, PROGRAM).unlink()
    done = repair(root)
    assert [at[-1] for at in done.aside] == [first.artifact]
    assert done.busy == ()
    assert quiet(root).find(BASE) == (second,)


@pytest.mark.parametrize("name", [DEAD, BEFORE], ids=["ended", "before a restart"])
def test_who_is_gone_is_not_waited_for(root, two, unhurried, name):
    os.mkdir(root / "v1/tmp" / name)
    blob_path(root, PROGRAM).unlink()
    with opened(root, create=False) as store:
        assert at_work(store) == set()
    assert [at[-1] for at in repair(root).aside] == [two[0].artifact]


def test_what_may_be_in_the_hands_of_those_that_never_end_is_left_alone_and_told(root, two, hasty):
    os.mkdir(root / "v1/tmp" / ELSEWHERE)
    blob_path(root, PROGRAM).unlink()
    done = repair(root)
    assert (done.aside, done.busy) == ([], (ELSEWHERE,))
    assert [one.place[-1] for one in done.checked.findings] == [PROGRAM.hex]
    assert ref_path(root, two[0]).exists()


def test_no_collection_takes_content_while_calm_is_wanted(root, two):
    ref_path(root, two[0]).unlink()
    with opened(root, create=False) as store, calm(store) as busy:
        assert busy == ()
        done = collect(root, grace_s=0)
        assert "unreferenced blobs stay: another process repairs the store" in done.notes
        assert blob_path(root, PROGRAM).exists()
    collect(root, grace_s=0)
    assert not blob_path(root, PROGRAM).exists()


def test_calm_that_a_killed_process_wanted_stops_no_collection(root, two):
    dead = root / "v1/tmp" / DEAD
    dead.mkdir()
    (dead / CALM).touch()
    with opened(root, create=False) as store:
        assert not calm_wanted(store)


def test_those_who_want_calm_do_not_wait_for_each_other(root, two):
    def wait():
        with opened(root, create=False) as store:
            for _ in range(20):
                with calm(store, 10) as busy:
                    assert busy == ()

    begun = time.monotonic()
    assert [exit_of(pid) for pid in [child(wait), child(wait)]] == [0, 0]
    assert time.monotonic() - begun < 10


def test_it_waits_a_second_time_for_those_who_began_meanwhile(root, two, monkeypatch):
    """They may lack what a collection took that was waited for first."""
    looks = [{"collects"}, {"collects", "publishes"}, {"publishes"}, {"publishes"}, set()]
    monkeypatch.setattr(module, "at_work", lambda store: looks.pop(0))
    with opened(root, create=False) as store, calm(store, 20) as busy:
        assert (busy, looks) == ((), [])
