"""Pinning: somebody wants to keep an artifact, and is told when it is gone already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcc.cache import roots
from vcc.cache.care.clock import now_of
from vcc.cache.care.items import read_items
from vcc.cache.care.place import existing
from vcc.cache.errors import MissingArtifact
from vcc.cache.trouble import storage


def pin_all(root: Path, artifacts: Sequence[str]) -> frozenset[str]:
    """Pin artifacts; returns those that were not pinned before.

    Raises:
        MissingArtifact: one was removed meanwhile; it is not pinned.
        StorageError, Unsafe: the pins cannot be written.
    """
    with storage("pin artifacts in the store at", str(root)), existing(root) as store:
        if store is None:
            return frozenset()
        new = frozenset(one for one in artifacts if roots.pin(store, one))
        # A removal looks for pins after it took the ref, so the ref is looked for after the pin.
        there = {item.artifact for item in read_items(store, now_of(store)).items}
        gone = [one for one in artifacts if one not in there]
        for one in gone:
            roots.unpin(store, one)
    if gone:
        raise MissingArtifact(
            f"artifact {gone[0][:12]} cannot be pinned", "it was removed just now"
        )
    return new


def unpin_all(root: Path, artifacts: Sequence[str]) -> frozenset[str]:
    """Take pins away; returns the artifacts that had one. Raises as `pin_all`."""
    with storage("unpin artifacts in the store at", str(root)), existing(root) as store:
        if store is None:
            return frozenset()
        return frozenset(one for one in artifacts if roots.unpin(store, one))
