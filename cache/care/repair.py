"""Repairing a store: what is bad is set aside, and what leads to it; all else is left alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.care.check import Checked, Finding, Place, check
from vcc.cache.care.clock import now_of
from vcc.cache.care.garbage import Scene, temporary
from vcc.cache.care.marks import Marks
from vcc.cache.care.place import existing
from vcc.cache.care.sweep import Swept, sweep
from vcc.cache.errors import StorageError
from vcc.cache.folder import Folder
from vcc.cache.quarantine import set_aside
from vcc.cache.trouble import storage


@dataclass(slots=True)
class Repaired:
    """What was found and what was done about it.

    Args:
        checked: what was wrong before.
        aside: what lies in quarantine now, by its place below `v1`.
        failed: what could not be moved.
        swept: temporary folders that went.
    """

    checked: Checked
    aside: list[Place] = field(default_factory=list)
    failed: list[Place] = field(default_factory=list)
    swept: Swept = field(default_factory=Swept)


def repair(root: Path) -> Repaired:
    """Check a store and take out of use what is bad.

    Damaged files go to quarantine, and the refs of artifacts that need them: the next look-up is a
    miss and builds anew. Whole blobs of such an artifact stay for that build to find.

    Raises:
        StorageError, Unsafe: the store cannot be read, or nothing in it can be moved.
    """
    done = Repaired(check(root))
    with storage("repair the store at", str(root)), existing(root) as store:
        if store is None:
            return done
        for at in _places(done.checked.findings):
            _set_aside(store, at, done)
        now = now_of(store)
        scene = Scene(store, Marks(store, now), now)
        sweep(scene, temporary(scene), done.swept)
    if done.failed and not done.aside:
        raise StorageError(
            f"the store at {root} cannot be repaired",
            f"{'/'.join(done.failed[0])} cannot be moved",
            "Check that you may write there",
        )
    return done


def _places(findings: list[Finding]) -> list[Place]:
    """Refs come first: nothing is to lead to a file that is gone."""
    places = dict.fromkeys(at for finding in findings for at in finding.aside)
    return sorted(places, key=lambda at: at[0] != "refs")


def _set_aside(store: Folder, at: Place, done: Repaired) -> None:
    *folders, name = at
    with suppress(FileNotFoundError), store.below(*folders) as folder:
        if name in folder.names():
            (done.aside if set_aside(store, folder, name) else done.failed).append(at)
