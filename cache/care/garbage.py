"""Garbage: what may go from a store, by kind, with the reason.

Ages are measured by the store's clock. They keep fresh files out of the way of those who write
them; that nothing in use goes rests on marks alone, see `sweep.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from vcc.cache import roots
from vcc.cache.blob import has_blob, place
from vcc.cache.care.clock import age
from vcc.cache.care.locks import is_free
from vcc.cache.care.marks import Marks, blob_states, names, others_at_work
from vcc.cache.digest import Digest, is_digest
from vcc.cache.folder import Folder
from vcc.cache.process import TMP, Life, Process
from vcc.cache.pulled import PULLED
from vcc.cache.quarantine import QUARANTINE
from vcc.cache.refs import REFS
from vcc.cache.single_flight import LOCKS
from vcc.cache.taken import SIGNATURES, is_taken
from vcc.cache.trouble import Unsafe
from vcc.cache.use import MISSED, USE

HOUR, DAY = 3600.0, 86400.0
QUARANTINE_S, MISSED_S = 30 * DAY, 30 * DAY
BLOBS, ORPHANS = "unreferenced blobs", "orphans"
TEMPORARY, EMPTY = "temporary folders", "empty folders"


@dataclass(frozen=True, slots=True)
class Garbage:
    """One file or folder that may go.

    Args:
        kind: what it is, plural, a key of `KINDS`.
        place: its path components below `v1`.
        size: its bytes.
        why: the reason, for people.
    """

    kind: str
    place: tuple[str, ...]
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What garbage is looked for in.

    Args:
        store: the open `v1` folder.
        marks: what must stay.
        now: seconds since 1970 by the store's clock.
        grace_s: seconds for which fresh files stay though nothing names them yet.
    """

    store: Folder
    marks: Marks
    now: float
    grace_s: float = HOUR

    def fresh(self, state: os.stat_result, limit: float | None = None) -> bool:
        """Whether a file is younger than the grace, by the later of its times."""
        newest = max(state.st_mtime, state.st_ctime)
        return age(self.now, newest) < (self.grace_s if limit is None else limit)

    def listed(self, *where: str) -> Iterator[tuple[str, os.stat_result]]:
        """The names in a folder with their states; nothing where there is no such folder."""
        with suppress(FileNotFoundError, NotADirectoryError), self.store.below(*where) as folder:
            for name in folder.names():
                with suppress(FileNotFoundError):
                    yield name, os.stat(name, dir_fd=folder.fd, follow_symlinks=False)


def temporary(scene: Scene) -> Iterator[Garbage]:
    """Folders of processes that are gone; of those that cannot be seen from here, old ones.

    What a sweep took into one is given back, so its bytes do not count.
    """
    for name, state in scene.listed(TMP):
        process = Process.parse(name)
        life = process.life() if process else Life.ELSEWHERE
        inner = _inner(scene, name)
        fresh = any(scene.fresh(one) for one in (state, *(found for _, found in inner)))
        if life is Life.GONE or (life is Life.ELSEWHERE and not fresh):
            why = "its process is gone" if life is Life.GONE else "nobody wrote to it for long"
            sizes = (one.st_size for at, one in inner if one.st_nlink == 1 and not is_taken(at))
            yield Garbage(TEMPORARY, (TMP, name), sum(sizes), why)


def _inner(scene: Scene, name: str) -> list[tuple[str, os.stat_result]]:
    with suppress(OSError, Unsafe):  # no folder, or not ours to look into
        return list(scene.listed(TMP, name))
    return []


def live_roots(scene: Scene) -> Iterator[Garbage]:
    """Live roots of processes that are gone."""
    for name, process in roots.live_names(scene.store):
        if not roots.is_live(scene.store, name, process, scene.now):
            yield Garbage("stale live roots", (*roots.LIVE, name), 0, "its process is gone")


def blobs(scene: Scene) -> Iterator[Garbage]:
    """Content that nothing names. A second link means that somebody publishes it right now."""
    states = blob_states(scene.store)  # before the marks: what is published later is not in it
    marked = scene.marks.marked()
    for name, state in states.items():
        if name not in marked and state.st_nlink == 1 and not scene.fresh(state):
            yield Garbage(BLOBS, place(Digest(name)), state.st_size, "nothing names it")


def quarantined(scene: Scene) -> Iterator[Garbage]:
    """What was set aside long ago."""
    for name, state in scene.listed(QUARANTINE):
        if not scene.fresh(state, QUARANTINE_S):
            yield Garbage("quarantined files", (QUARANTINE, name), state.st_size, "30 days old")


def orphans(scene: Scene) -> Iterator[Garbage]:
    """Notes, marks and signatures of artifacts that are not there.

    A pull writes marks and signatures long before the ref, so all stay while somebody writes.
    """
    if others_at_work(scene.store):
        return
    known = scene.marks.artifacts()
    for where in (USE, (PULLED,), (SIGNATURES,)):
        for name, state in scene.listed(*where):
            gone = is_digest(name) and name not in known and not has_blob(scene.store, Digest(name))
            if gone and not scene.fresh(state):
                yield Garbage(ORPHANS, (*where, name), state.st_size, "its artifact is gone")


def old_misses(scene: Scene) -> Iterator[Garbage]:
    """Counts of look-ups that nobody made for long."""
    for name, state in scene.listed(*MISSED):
        if not scene.fresh(state, MISSED_S):
            yield Garbage("old notes", (*MISSED, name), state.st_size, "30 days old")


def locks(scene: Scene) -> Iterator[Garbage]:
    """Lock files that nobody holds, and what was noted of their holders."""
    for name, state in scene.listed(LOCKS):
        stem = name.partition(".")[0]
        if is_digest(stem) and not scene.fresh(state) and is_free(scene.store, stem):
            yield Garbage("stale locks", (LOCKS, name), state.st_size, "nobody holds it")


def empty_folders(scene: Scene) -> Iterator[Garbage]:
    """Folders of refs with nothing in them."""
    for base, state in scene.listed(REFS):
        if is_digest(base) and not scene.fresh(state) and not names(scene.store, REFS, base):
            yield Garbage(EMPTY, (REFS, base), 0, "nothing is in it")


KINDS: Mapping[str, Callable[[Scene], Iterator[Garbage]]] = {
    TEMPORARY: temporary,
    "stale live roots": live_roots,
    "stale locks": locks,
    BLOBS: blobs,
    ORPHANS: orphans,
    "quarantined files": quarantined,
    "old notes": old_misses,
    EMPTY: empty_folders,
}
"""In the order in which they go: a folder of `tmp/` holds second links of blobs."""
