"""Notes of use: counted by appending, never in the way, wrong ones harmless."""

from __future__ import annotations

import os
import time

from support.stores import child, exit_of

from vcc.cache.root import opened
from vcc.cache.use import MOST, Use, misses, note_miss, note_use, uses

A, B = "a" * 64, "b" * 64


def test_uses_are_counted_with_the_time_of_the_last(root):
    with opened(root, create=True) as store:
        assert uses(store) == {}
        before = time.time()
        for _ in range(3):
            note_use(store, A)
        note_miss(store, B)
        assert uses(store)[A].count == 3
        assert before - 1 < uses(store)[A].last < time.time() + 1
        assert {base: use.count for base, use in misses(store).items()} == {B: 1}


def test_no_use_is_lost_when_processes_count_at_once(root):
    with opened(root, create=True) as store:
        note_use(store, A)
        children = [child(lambda: [note_use(store, A) for _ in range(200)]) for _ in range(4)]
        assert [exit_of(pid) for pid in children] == [0] * 4
        assert uses(store)[A].count == 801


def test_a_count_ends_at_its_cap_and_still_tells_the_last_use(root):
    with opened(root, create=True) as store:
        note_use(store, A)
        path = root / "v1/notes/use" / A
        os.truncate(path, MOST + 5)
        os.utime(path, (0, 0))
        note_use(store, A)
        assert path.stat().st_size == MOST + 5
        assert uses(store)[A].count == MOST
        assert uses(store)[A].last > 1e9


def test_strange_notes_do_no_harm(root):
    with opened(root, create=True) as store:
        note_use(store, A)
        folder = root / "v1/notes/use"
        (folder / "README").touch()
        (folder / B).symlink_to("/etc/passwd")
        os.utime(folder / A, (-5, -5))
        note_use(store, B)
        assert uses(store)[A] == Use(1, 0.0)
        os.rename(folder, root / "v1/notes/gone")
        folder.write_text("no folder")
        note_use(store, A)
        assert uses(store) == {}
