"""Repairing a store: what is bad is set aside, and what leads to it; all else is left alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.blob import has_blob
from vcc.cache.care.calm import calm
from vcc.cache.care.check import check
from vcc.cache.care.clock import now_of
from vcc.cache.care.finding import Checked, Finding, Place
from vcc.cache.care.garbage import Scene, temporary
from vcc.cache.care.marks import Marks
from vcc.cache.care.place import existing
from vcc.cache.care.sweep import Swept, sweep
from vcc.cache.digest import Digest
from vcc.cache.errors import StorageError
from vcc.cache.folder import Folder
from vcc.cache.quarantine import set_aside
from vcc.cache.refs import REFS
from vcc.cache.taken import give_back
from vcc.cache.trouble import storage


@dataclass(slots=True)
class Repaired:
    """What was found and what was done about it.

    Args:
        checked: what was wrong before.
        aside: what lies in quarantine now, by its place below `v1`.
        failed: what could not be moved.
        busy: folders of those at work that could not be waited for: files that are missing may
            be in their hands, so what leads to these was left alone.
        swept: temporary folders that went.
    """

    checked: Checked
    aside: list[Place] = field(default_factory=list)
    failed: list[Place] = field(default_factory=list)
    busy: tuple[str, ...] = ()
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
        now = now_of(store)
        scene = Scene(store, Marks(store, now), now)
        sweep(scene, temporary(scene), done.swept)  # who is gone is not waited for
        found = done.checked.findings
        _all_aside(store, [one for one in found if not one.lacks], done)
        _lacking_aside(store, [one for one in found if one.lacks], done)
    if done.failed and not done.aside:
        raise StorageError(
            f"the store at {root} cannot be repaired",
            f"{'/'.join(done.failed[0])} cannot be moved",
            "Check that you may write there",
        )
    return done


def _lacking_aside(store: Folder, findings: list[Finding], done: Repaired) -> None:
    """Set aside what leads to files that are lost, not to those in the hands of others."""
    if not findings:
        return
    with calm(store) as done.busy:
        for one in findings:
            if has_blob(store, Digest(one.lacks[-1])) or give_back(store, one.lacks):
                done.checked.findings.remove(one)
            elif not done.busy:
                _all_aside(store, [one], done)


def _all_aside(store: Folder, findings: list[Finding], done: Repaired) -> None:
    """Refs go first: nothing is to lead to a file that is gone."""
    places = dict.fromkeys(at for finding in findings for at in finding.aside)
    for at in sorted(places, key=lambda at: at[0] != REFS):
        _set_aside(store, at, done)


def _set_aside(store: Folder, at: Place, done: Repaired) -> None:
    *folders, name = at
    with suppress(FileNotFoundError), store.below(*folders) as folder:
        if name in folder.names():
            (done.aside if set_aside(store, folder, name) else done.failed).append(at)
