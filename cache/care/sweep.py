"""Sweeping: garbage leaves its place first, and is destroyed once nobody can want it back.

    1. move each file into an own folder of tmp/
    2. read again what names blobs (refs, pins, live roots, shelves); put back what is named now
    3. destroy the rest

A publisher writes its ref and then looks whether its blobs are there (`publish.py`). So of a
publisher and a sweep at work at once, one sees the other in any order of their steps: either the
sweep finds the ref and puts the blob back, or the publisher finds the blob gone and writes it anew.
No clock and no lock is part of that. Killed anywhere, a sweep leaves a folder in tmp/, which the
next one removes; a reader in between sees a miss.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.canonical import MAX_BYTES
from vcc.cache.care.calm import calm_wanted
from vcc.cache.care.clock import now_of
from vcc.cache.care.garbage import BLOBS, EMPTY, HOUR, KINDS, ORPHANS, Garbage, Scene
from vcc.cache.care.marks import AtWork, Marks
from vcc.cache.care.place import existing
from vcc.cache.folder import Folder
from vcc.cache.publish import own_folder
from vcc.cache.trouble import Unsafe, storage

BATCH = 1000
DEEPEST = 8
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
    for one in waiting:  # what a manifest names must be known once it is out of its place
        if one.kind == BLOBS and one.size <= MAX_BYTES:
            scene.marks.named(one.place[-1])
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
    with own_folder(scene.store) as own:
        if any(one.kind == BLOBS for one in batch) and calm_wanted(scene.store):
            done.notes.append(f"{BLOBS} stay: another process repairs the store")
            return
        moved = {}
        for number, one in enumerate(batch):
            try:
                if _moved(scene.store, own, str(number), one):
                    moved[str(number)] = one
            except (OSError, Unsafe) as error:
                done.failed.append((one, str(error)))
        back = _put_back(scene, own, moved, done)
        for name, one in moved.items():
            if name not in back:
                _destroy(own.fd, name)
                done.gone.append(one)


def _moved(store: Folder, own: Folder, name: str, one: Garbage) -> bool:
    """Move something out of its place; False where it is gone already, or in use again."""
    *folders, last = one.place
    try:
        with store.below(*folders) as folder:
            if one.kind == EMPTY:  # a rename would take along what was just published in it
                os.rmdir(last, dir_fd=folder.fd)
                return True
            os.rename(last, name, src_dir_fd=folder.fd, dst_dir_fd=own.fd)
    except FileNotFoundError:
        return False
    except OSError:
        if one.kind == EMPTY:  # no longer empty
            return False
        raise
    return True


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
    for name in back:
        *folders, last = careful[name].place
        with scene.store.below(*folders, create=True) as folder, suppress(FileExistsError):
            _link(own, name, folder, last)
            folder.sync()
    return back


def _wanted(own: Folder, name: str, one: Garbage, names: set[str]) -> bool:
    """Whether something names it, or a publisher has a second link of it."""
    return one.place[-1] in names or (one.kind == BLOBS and _linked(own, name))


def _link(own: Folder, name: str, folder: Folder, last: str) -> None:
    try:
        os.link(name, last, src_dir_fd=own.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a folder, or no hard links here; who was faster has put the same there
        os.rename(name, last, src_dir_fd=own.fd, dst_dir_fd=folder.fd)


def _linked(own: Folder, name: str) -> bool:
    return os.stat(name, dir_fd=own.fd, follow_symlinks=False).st_nlink > 1


def _destroy(fd: int, name: str, depth: int = 0) -> None:
    """Remove a file or a folder with all that is in it; links are removed, never followed."""
    with suppress(OSError):
        state = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISDIR(state.st_mode):
            os.unlink(name, dir_fd=fd)
        elif depth < DEEPEST:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            try:
                for one in os.listdir(inner):
                    _destroy(inner, one, depth + 1)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=fd)
