"""What a check finds, and which of it is only in somebody's hands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from vcc.cache.blob import has_blob
from vcc.cache.care.calm import at_work
from vcc.cache.digest import Digest
from vcc.cache.folder import Folder
from vcc.cache.quarantine import exists
from vcc.cache.taken import is_in_hands

Place = tuple[str, ...]
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: ref, manifest, blob, index, signature or mark.
        place: where it lies below `v1`.
        reason: what is wrong with it.
        artifacts: ids of the artifacts that cannot be used for it.
        aside: what repair moves to quarantine: the bad file, and what leads to it.
        lacks: the place of a file that is not there; empty where a file is bad.
    """

    kind: str
    place: Place
    reason: str
    artifacts: tuple[str, ...] = ()
    aside: tuple[Place, ...] = ()
    lacks: Place = ()


@dataclass(slots=True)
class Checked:
    """What was looked at, and what is wrong.

    Args:
        counts: how many of each kind were looked at.
        size: bytes whose digest was compared.
        newer: artifacts that only a later vcc reads; they are not judged.
        taken: files that are named, and that a sweep has; who misses one gives it back.
        findings: what is wrong, in the order of the store's layout.
        notes: what could not be looked at.
    """

    counts: dict[str, int] = field(default_factory=dict)
    size: int = 0
    newer: int = 0
    taken: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def still_missing(
    store: Folder, findings: Sequence[Finding], wait_s: float
) -> tuple[list[Finding], tuple[str, ...]]:
    """Look again at files that are missing, once those are done who may have them.

    Args:
        store: the open `v1` folder.
        findings: of a check.
        wait_s: seconds to wait at most.

    Returns:
        What is wrong still, and the folders below `tmp/` of those that may have what is missing.
    """
    if not any(one.lacks for one in findings):
        return list(findings), ()
    busy = _waited_for(store, wait_s)
    left = [one for one in findings if not (one.lacks and _is_back(store, one))]
    return left, tuple(sorted(busy)) if any(one.lacks for one in left) else ()


def _waited_for(store: Folder, wait_s: float) -> set[str]:
    """Wait for those at work now; the folders of those that are not done in time."""
    end, left = time.monotonic() + wait_s, at_work(store)
    while left and time.monotonic() < end:
        time.sleep(POLL_S)
        left &= at_work(store)
    return left


def _is_back(store: Folder, found: Finding) -> bool:
    """Whether a file is there after all, or nothing that leads to it is."""
    if has_blob(store, Digest(found.lacks[-1])) or is_in_hands(store, found.lacks):
        return True
    return not any(_exists(store, at) for at in found.aside if at != found.lacks)


def _exists(store: Folder, at: Place) -> bool:
    *folders, name = at
    with suppress(FileNotFoundError), store.below(*folders) as folder:
        return exists(folder, name)
    return False
