"""Unlocking: build locks that a killed holder left are removed, held ones are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.care.locks import Lock, State, read_locks, remove_lock
from vcc.cache.care.place import existing
from vcc.cache.trouble import storage


@dataclass(slots=True)
class Unlocked:
    """What became of the locks of a store.

    Args:
        removed: those whose files went. Of builds that ended by themselves a file is left too; it
            says nothing, and goes with the next collection.
        kept: those that somebody holds, or may hold.
    """

    removed: list[Lock] = field(default_factory=list)
    kept: list[Lock] = field(default_factory=list)


def unlock(root: Path, *, force: bool = False, dry_run: bool = False) -> Unlocked:
    """Remove the locks that killed processes left.

    Args:
        root: the root of the store.
        force: held ones too; who waits then builds beside the holder, and both publish fine.
        dry_run: only say what would go.

    Raises:
        StorageError, Unsafe: the locks cannot be read or removed.
    """
    done = Unlocked()
    with storage("unlock the store at", str(root)), existing(root) as store:
        for lock in read_locks(store) if store else ():
            if lock.over:
                continue
            if lock.state is not State.FREE and not force:
                done.kept.append(lock)
                continue
            if store is not None and not dry_run:
                remove_lock(store, lock)
            done.removed.append(lock)
    return done
