"""Roots: live ones end with their process, pins stay until they are taken away."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from support.stores import child, exit_of

from vcc.cache import roots
from vcc.cache.process import Process
from vcc.cache.root import opened

A, B = "a" * 64, "b" * 64
HOLD = """
import sys
from pathlib import Path
from vcc.cache.root import opened
from vcc.cache.roots import hold
with opened(Path(sys.argv[1]), create=True) as store:
    hold(store, "a" * 64)
print("held", flush=True)
sys.stdin.read()
"""


def holder(root) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def live(root, now=None):
    with opened(root, create=False) as store:
        return roots.live(store, time.time() if now is None else now)


def test_a_process_holds_what_it_loaded_until_it_ends(root):
    process = holder(root)
    assert [p.pid for p in live(root)[A]] == [process.pid]
    process.communicate("")
    assert live(root) == {}
    assert os.listdir(root / "v1/roots/live") == []


def test_a_killed_process_holds_nothing_though_its_root_lies_there(root):
    process = holder(root)
    process.kill()
    process.communicate()
    assert len(os.listdir(root / "v1/roots/live")) == 1
    assert live(root) == {}


def test_a_child_that_ends_takes_nothing_of_its_parent_away(root):
    with opened(root, create=True) as store:
        roots.hold(store, A)
        assert exit_of(child(roots.release)) == 0
        assert A in roots.live(store, time.time())
        roots.release()
        assert roots.live(store, time.time()) == {}


def test_holding_twice_is_one_root_and_a_lost_one_is_made_again(root):
    with opened(root, create=True) as store:
        for _ in range(2):
            roots.hold(store, A)
            (name,) = os.listdir(root / "v1/roots/live")
        os.unlink(root / "v1/roots/live" / name)
        roots.hold(store, A)
        assert list(roots.live(store, time.time())) == [A]
    roots.release()


def test_roots_of_another_machine_count_for_a_week(root):
    place = root / "v1/roots/live"
    with opened(root, create=True) as store:
        roots.hold(store, A)
        own = Process.own()
        path = place / f"elsewhere.{own.boot}.1-2-3.{B}"
        path.touch()
        now = time.time()
        assert set(roots.live(store, now)) == {A, B}
        assert set(roots.live(store, now - 10 * 365 * 86400)) == {A, B}
        assert set(roots.live(store, now + 8 * 86400)) == {A}
    roots.release()


def test_files_of_another_form_are_no_roots(root):
    with opened(root, create=True) as store:
        roots.hold(store, A)
        roots.release()
        for name in ("x", f"h.0f.1.{'a' * 63}", "README"):
            (root / "v1/roots/live" / name).touch()
        (root / "v1/roots/pins").mkdir()
        (root / "v1/roots/pins/x").touch()
        assert roots.live(store, time.time()) == {}
        assert roots.pinned(store) == frozenset()


def test_a_store_that_cannot_be_written_is_not_held_and_not_an_error(root):
    with opened(root, create=True) as store:
        (root / "v1/roots").write_text("a file where a folder belongs")
        roots.hold(store, A)
    assert (root / "v1/roots").is_file()


def test_pins_survive_and_are_counted_once(root):
    with opened(root, create=True) as store:
        assert roots.pinned(store) == frozenset()
        assert not roots.unpin(store, A)
        assert roots.pin(store, A)
        assert not roots.pin(store, A)
    with opened(root, create=False) as store:
        assert roots.pinned(store) == {A}
        assert roots.unpin(store, A)
        assert not roots.unpin(store, A)
        assert roots.pinned(store) == frozenset()
