"""Items: what is known of each artifact, for lists, filters and eviction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from vcc.cache import roots
from vcc.cache.blob import place
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.care.clock import age
from vcc.cache.care.index import all_bases, indexed_bases
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.manifest import Manifest
from vcc.cache.use import Use, uses

_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])


class Item(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One artifact as a list shows it.

    Args:
        artifact, base: its id and the digest of its request's base, hex.
        title: what it is, for people.
        size: bytes of all its blobs; those that it shares with others count here too.
        build_ms: milliseconds that its build took; 0 where that is not known.
        created: seconds since 1970 by the builder's clock.
        used: last use or else publication, seconds since 1970 by the store's clock.
        now: when this was read, by the store's clock.
        hits: uses that were noted.
        pinned: whether somebody wants to keep it.
        holders: how many processes use it now.
        shown: some labels of its request, see `rows.py`.
        request: all of its request, as JSON text.
        host_rules: what must hold where it is loaded, as JSON text.
    """

    artifact: str
    base: str
    title: str
    size: int
    build_ms: int
    created: int
    used: float
    now: float
    hits: int
    pinned: bool
    holders: int
    shown: dict[str, str]
    request: str
    host_rules: str

    @property
    def age(self) -> float:
        """Seconds since it was built."""
        return age(self.now, self.created)

    @property
    def idle(self) -> float:
        """Seconds since it was used or published."""
        return age(self.now, self.used)

    @property
    def fields(self) -> dict[str, str]:
        """All fields of its request."""
        return dict(_PAIRS.decode(self.request))

    @property
    def rules(self) -> dict[str, str]:
        """Its host rules."""
        return dict(_PAIRS.decode(self.host_rules))


@dataclass(frozen=True, slots=True)
class Items:
    """What lies in a store.

    Args:
        items: newest first.
        bad: how many refs are damaged; `vcc cache verify` tells which.
    """

    items: tuple[Item, ...]
    bad: int = 0


def read_items(store: Folder, now: float, *, index: bool = False) -> Items:
    """All artifacts that have a ref.

    Args:
        store: the open `v1` folder.
        now: seconds since 1970 by the store's clock, see `clock.py`.
        index: whether the index may stand for refs: for lists, not for what removes.

    Raises:
        OSError, Unsafe: the store cannot be listed.
    """
    noted, pins, held = uses(store), roots.pinned(store), roots.live(store, now)
    found: list[Item] = []
    bases = indexed_bases(store) if index else all_bases(store)
    for base in bases:
        for row in base.rows:
            use = noted.get(row.artifact, _UNUSED)
            found.append(
                Item(
                    artifact=row.artifact,
                    base=base.base,
                    title=row.title,
                    size=row.size,
                    build_ms=row.build_ms,
                    created=row.created,
                    used=max(use.last, row.written),
                    now=now,
                    hits=use.count,
                    pinned=row.artifact in pins,
                    holders=len(held.get(row.artifact, ())),
                    shown=row.shown,
                    request=row.request,
                    host_rules=row.host_rules,
                )
            )
    found.sort(key=lambda item: (-item.created, item.artifact))
    return Items(tuple(found), sum(base.bad for base in bases))


_UNUSED = Use(0, 0.0)


def builder_of(store: Folder, item: Item) -> Mapping[str, str]:
    """The versions that built an artifact, from its manifest; empty where that cannot be read."""
    *folders, name = place(Digest(item.artifact))
    try:
        with store.below(*folders) as shelf:
            return Manifest.decode(shelf.read(name, limit=MAX_BYTES)).builder
    except (OSError, IntegrityError, WrongSize):
        return {}
