"""Eviction: which artifacts go so that a store stays within bounds.

    score = log2(seconds of building / bytes) - idle time / HALF_LIFE

An artifact that took long to build and is small goes last; each week without a use halves what it
is worth. Where the time of a build is not known, the median of those that are known stands for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vcc.cache.care.items import Item

HALF_LIFE_S = 7 * 86400.0
DEFAULT_MS = 10_000.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a store is kept within; 0 for no bound.

    Args:
        max_size: bytes of all blobs that artifacts name.
        keep_last: artifacts of one base (a model with its dtype and quantisation), the newest.
        unused_s: seconds since the last use.
    """

    max_size: int = 0
    keep_last: int = 0
    unused_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.max_size or self.keep_last or self.unused_s)


@dataclass(frozen=True, slots=True)
class Evicted:
    """An artifact that is to go, and why."""

    item: Item
    why: str


def score(item: Item, usual_ms: float) -> float:
    """What keeping an artifact is worth; only comparable within one store and moment.

    Args:
        item: the artifact.
        usual_ms: milliseconds that stand for a build of unknown length.
    """
    seconds = (item.build_ms or usual_ms) / 1000
    return math.log2(seconds / max(1, item.size)) - item.idle / HALF_LIFE_S


def usual_build_ms(items: Iterable[Item]) -> float:
    """The median of known build times, in milliseconds."""
    known = sorted(item.build_ms for item in items if item.build_ms)
    return float(known[len(known) // 2]) if known else DEFAULT_MS


def worst_first(items: Sequence[Item]) -> list[Item]:
    """Items in the order in which they go; equal scores by id, so that the order is stable."""
    usual = usual_build_ms(items)
    return sorted(items, key=lambda item: (score(item, usual), item.artifact))


def chosen(
    items: Sequence[Item],
    bounds: Bounds,
    *,
    may_go: Callable[[Item], bool],
    named: Callable[[str], frozenset[str]],
    sizes: Mapping[str, int],
) -> list[Evicted]:
    """The artifacts that go, in this order.

    Args:
        items: all artifacts of the store.
        bounds: what to keep it within.
        may_go: False for what must stay (pinned, in use, not asked for).
        named: the digests that an artifact names, its own among them or not.
        sizes: bytes of each blob that is there.
    """
    found: dict[str, Evicted] = {}
    for item in _beyond_last(items, bounds.keep_last):
        found[item.artifact] = Evicted(item, f"newer ones of it are {bounds.keep_last} or more")
    for item in items:
        if bounds.unused_s and item.idle >= bounds.unused_s:
            found.setdefault(item.artifact, Evicted(item, f"unused for {item.idle / 86400:.1f} d"))
    going = [one for one in found.values() if may_go(one.item)]
    if bounds.max_size:
        left = [item for item in items if item.artifact not in {e.item.artifact for e in going}]
        going += _until_small(left, bounds.max_size, may_go, named, sizes)
    return going


def _beyond_last(items: Sequence[Item], keep: int) -> list[Item]:
    if not keep:
        return []
    seen: Counter[str] = Counter()
    beyond = []
    for item in sorted(items, key=lambda one: (-one.created, one.artifact)):
        seen[item.base] += 1
        if seen[item.base] > keep:
            beyond.append(item)
    return beyond


def _until_small(
    items: Sequence[Item],
    limit: int,
    may_go: Callable[[Item], bool],
    named: Callable[[str], frozenset[str]],
    sizes: Mapping[str, int],
) -> list[Evicted]:
    """Worst first until what is left fits; a shared blob goes with its last user."""
    blobs = {
        item.artifact: (named(item.artifact) | {item.artifact}) & sizes.keys() for item in items
    }
    users = Counter(digest for held in blobs.values() for digest in held)
    total = sum(sizes[digest] for digest in users)
    going: list[Evicted] = []
    for item in worst_first(items):
        if total <= limit:
            break
        if not may_go(item):
            continue
        users.subtract(blobs[item.artifact])
        total -= sum(sizes[digest] for digest in blobs[item.artifact] if users[digest] == 0)
        going.append(Evicted(item, f"the store is larger than {limit} bytes"))
    return going
