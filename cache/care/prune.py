"""Pruning: eviction of what a store is not to keep, by hand or after a build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.care.clock import now_of
from vcc.cache.care.evict import Bounds, Evicted, chosen
from vcc.cache.care.items import Item, Items, read_items
from vcc.cache.care.marks import Marks, blob_states
from vcc.cache.care.place import existing
from vcc.cache.care.remove import Removed, remove
from vcc.cache.errors import VccError
from vcc.cache.folder import Folder
from vcc.cache.trouble import storage


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did, or would do.

    Args:
        evicted: the artifacts that were chosen, with the reason, worst first.
        removed: what became of them.
    """

    evicted: tuple[Evicted, ...] = ()
    removed: Removed = field(default_factory=Removed)


def items_of(root: Path, *, index: bool = False) -> Items:
    """All artifacts of a store; none where there is no store.

    Args:
        root: the root of the store.
        index: as in `read_items`.

    Raises:
        StorageError, Unsafe: it cannot be read.
    """
    with storage("read the store at", str(root)), existing(root) as store:
        return Items(()) if store is None else read_items(store, now_of(store), index=index)


def prune(
    root: Path,
    bounds: Bounds,
    *,
    passes: Callable[[Sequence[Item]], Sequence[Item]] = lambda items: items,
    keep: frozenset[str] = frozenset(),
    dry_run: bool = False,
) -> Pruned:
    """Remove what is out of bounds; never what is pinned or in use.

    Args:
        root: the root of the store.
        bounds: what to keep it within.
        passes: of all items those that may go at all.
        keep: artifacts that stay whatever the bounds say.
        dry_run: only say what would go.

    Raises:
        StorageError, Unsafe: the store cannot be read or written.
    """
    with storage("read the store at", str(root)), existing(root) as store:
        if store is None:
            return Pruned()
        evicted = _chosen(store, bounds, passes, keep)
    return Pruned(tuple(evicted), remove(root, [one.item for one in evicted], dry_run=dry_run))


def keep_under(root: Path, max_size: int, artifact: str) -> str:
    """After a build: evict until the store is no larger than it may be (VCC_MAX_SIZE).

    Args:
        root: the root of the store.
        max_size: bytes; 0 for no limit.
        artifact: what was just stored; it stays.

    Returns:
        What was done, one line; empty when nothing was to do. Never raises for the store's sake:
        the build is good whatever becomes of this.
    """
    if not max_size:
        return ""
    try:
        if _stored_bytes(root) <= max_size:
            return ""
        done = prune(root, Bounds(max_size=max_size), keep=frozenset({artifact}))
        removed = done.removed
        if removed.items:
            size = f"{removed.swept.size / 1e6:.1f} MB"
            return f"VCC_MAX_SIZE: evicted {len(removed.items)} artifacts, {size}"
        return "VCC_MAX_SIZE: the store is larger, but nothing in it may go"
    except VccError as error:
        return f"VCC_MAX_SIZE could not be kept: {error}"


def _stored_bytes(root: Path) -> int:
    """Bytes of all blobs; far sooner known than which artifact names them."""
    with storage("read the store at", str(root)), existing(root) as store:
        return sum(one.st_size for one in blob_states(store).values()) if store else 0


def _chosen(
    store: Folder,
    bounds: Bounds,
    passes: Callable[[Sequence[Item]], Sequence[Item]],
    keep: frozenset[str],
) -> list[Evicted]:
    now = now_of(store)
    items = read_items(store, now).items
    allowed = {
        item.artifact
        for item in passes(items)
        if not item.pinned and not item.holders and item.artifact not in keep
    }
    return chosen(
        items,
        bounds,
        may_go=lambda item: item.artifact in allowed,
        named=Marks(store, now).named,
        sizes={digest: state.st_size for digest, state in blob_states(store).items()},
    )
