"""Sweeping: garbage leaves its place first, and is destroyed once nobody can want it back.

    1. move each file into an own folder of tmp/, under a name that says where it is from
    2. read again what names blobs (refs, pins, live roots, shelves); put back what is named now
    3. destroy the rest

A publisher writes its ref and then looks whether its blobs are there (`publish.py`). So of a
publisher and a sweep at work at once, one sees the other in any order of their steps: either the
sweep finds the ref and puts the blob back, or the publisher finds the blob gone and writes it anew.
No clock and no lock is part of that. Killed anywhere, a sweep leaves a folder in tmp/. What it had
taken is given back by whoever misses it, or by the next sweep (`taken.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.care.calm import calm_wanted
from vcc.cache.care.clock import now_of
from vcc.cache.care.garbage import (
    BLOBS,
    EMPTY,
    HOUR,
    KINDS,
    ORPHANS,
    TEMPORARY,
    Garbage,
    Scene,
)
from vcc.cache.care.marks import AtWork, Marks
from vcc.cache.care.place import existing
from vcc.cache.folder import Folder
from vcc.cache.publish import own_folder
from vcc.cache.quarantine import exists
from vcc.cache.taken import give_all_back, is_taken, taken_name
from vcc.cache.trouble import Unsafe, storage

BATCH = 1000
DEEPEST = 64
WANTED: Mapping[str, Callable[[Marks], set[str]]] = {BLOBS: Marks.marked, ORPHANS: Marks.artifacts}
"""Kinds that somebody may come to name while they go, and what names them."""


@dataclass(slots=True)
class Swept:
    """What a sweep did, or would do.

    Args:
        gone: what went.
        failed: what could not go, with the reason.
        notes: what was left alone, and why.
    """

    gone: list[Garbage] = field(default_factory=list)
    failed: list[tuple[Garbage, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that became free."""
        return sum(one.size for one in self.gone)

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """How many of each kind went, and their bytes."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.gone:
            count, size = found.get(one.kind, (0, 0))
            found[one.kind] = (count + 1, size + one.size)
        return found


def collect(root: Path, *, grace_s: float = HOUR, dry_run: bool = False) -> Swept:
    """Garbage collection: remove what nothing needs any more.

    Args:
        root: the root of a store; one that is not there has no garbage.
        grace_s: seconds for which files stay that nothing names yet.
        dry_run: only say what would go.

    Raises:
        StorageError, Unsafe: the store cannot be read or written.
    """
    done = Swept()
    with storage("collect garbage in the store at", str(root)), existing(root) as store:
        if store is None:
            return done
        now = now_of(store)
        scene = Scene(store, Marks(store, now), now, grace_s)
        for kind in KINDS:
            found = _found(scene, kind, done)
            if dry_run:
                done.gone += found
            else:
                sweep(scene, found, done)
    return done


def sweep(scene: Scene, found: Iterable[Garbage], done: Swept) -> None:
    """Remove what was found; what cannot be removed is noted and stops nothing else."""
    waiting = list(found)
    for first in range(0, len(waiting), BATCH):
        _sweep_batch(scene, waiting[first : first + BATCH], done)


def _found(scene: Scene, kind: str, done: Swept) -> list[Garbage]:
    strange = scene.marks.strange() if kind == BLOBS else ()
    if strange:
        done.notes.append(f"{kind} stay: a later vcc keeps {', '.join(strange)} in this store")
        return []
    try:
        return list(KINDS[kind](scene))
    except (OSError, Unsafe, AtWork) as error:
        done.notes.append(f"{kind} stay: {error}")
        return []


def _sweep_batch(scene: Scene, batch: list[Garbage], done: Swept) -> None:
    if not batch:
        return
    with own_folder(scene.store, is_taken) as own, _all_given_back(scene, own):
        if any(one.kind == BLOBS for one in batch) and calm_wanted(scene.store):
            done.notes.append(f"{BLOBS} stay: another process repairs the store")
            return
        moved = {}
        for number, one in enumerate(batch):
            name = taken_name(one.place) if one.kind in WANTED else str(number)
            try:
                if _MOVES.get(one.kind, _moved)(scene, own, name, one):
                    moved[name] = one
            except (OSError, Unsafe) as error:
                done.failed.append((one, str(error)))
        back = _put_back(scene, own, moved, done)
        for name, one in moved.items():
            if name not in back:
                _destroy(own.fd, name)
                done.gone.append(one)


@contextmanager
def _all_given_back(scene: Scene, own: Folder) -> Iterator[None]:
    """What is still taken at the end gets its place again, whatever has happened."""
    try:
        yield
    finally:
        give_all_back(scene.store, own, _first(scene))


def _moved(scene: Scene, own: Folder, name: str, one: Garbage) -> bool:
    """Move something out of its place; False where it is gone already."""
    *folders, last = one.place
    try:
        with scene.store.below(*folders) as folder:
            os.rename(last, name, src_dir_fd=folder.fd, dst_dir_fd=own.fd)
    except FileNotFoundError:
        return False
    return True


def _emptied(scene: Scene, own: Folder, name: str, one: Garbage) -> bool:
    """Remove an empty folder: a rename would take along what was just published in it."""
    *folders, last = one.place
    try:
        with scene.store.below(*folders) as folder:
            os.rmdir(last, dir_fd=folder.fd)
    except OSError:  # gone, or no longer empty
        return False
    return True


def _cleared(scene: Scene, own: Folder, name: str, one: Garbage) -> bool:
    """Remove the folder of somebody who is gone, after what a sweep had taken into it is back.

    It stays in its place: where that sweep goes on after all, nothing it takes now is destroyed.
    """
    *folders, last = one.place
    with scene.store.below(*folders) as tmp:
        with suppress(FileNotFoundError, NotADirectoryError), tmp.below(last) as left:
            give_all_back(scene.store, left, _first(scene))
        _destroy(tmp.fd, last)
        if exists(tmp, last):
            raise FileExistsError(errno.EEXIST, "it cannot be removed", last)
    return True


_MOVES: Mapping[str, Callable[[Scene, Folder, str, Garbage], bool]] = {
    EMPTY: _emptied,
    TEMPORARY: _cleared,
}
"""Kinds that go where they are."""


def _put_back(scene: Scene, own: Folder, moved: Mapping[str, Garbage], done: Swept) -> set[str]:
    """What something names now, or what somebody publishes now, gets its place again."""
    careful = {name: one for name, one in moved.items() if one.kind in WANTED}
    if not careful:
        return set()
    try:
        wanted = {kind: named(scene.marks) for kind, named in WANTED.items()}
        back = {n for n, one in careful.items() if _wanted(own, n, one, wanted[one.kind])}
    except (OSError, Unsafe, AtWork) as error:
        done.notes.append(f"what was moved was put back: {error}")
        back = set(careful)
    give_all_back(scene.store, own, _first(scene), back)
    return back


def _first(scene: Scene) -> Container[str]:
    """What goes back before all else: manifests that a ref leads to, as far as can be known."""
    with suppress(OSError, Unsafe):
        return scene.marks.artifacts()
    return ()


def _wanted(own: Folder, name: str, one: Garbage, names: set[str]) -> bool:
    """Whether something names it, or a publisher has a second link of it."""
    return one.place[-1] in names or (one.kind == BLOBS and _linked(own, name))


def _linked(own: Folder, name: str) -> bool:
    with suppress(FileNotFoundError):  # given back by a reader
        return os.stat(name, dir_fd=own.fd, follow_symlinks=False).st_nlink > 1
    return True


def _destroy(fd: int, name: str, depth: int = 0) -> None:
    """Remove a file or a folder with all that is in it; links are removed, never followed.

    In a folder what somebody else has just taken stays, and the folder with it.
    """
    with suppress(OSError):
        state = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISDIR(state.st_mode):
            os.unlink(name, dir_fd=fd)
        elif depth < DEEPEST:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            try:
                for one in os.listdir(inner):
                    if not is_taken(one):
                        _destroy(inner, one, depth + 1)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=fd)
