"""Items: what is known of each artifact for lists, filters and eviction, read from refs and notes.

Ten thousand refs are read in a third of a second: their sums are compared, their deeper rules are
not. So nothing that loads an artifact may rely on an item.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from vcc.cache import roots
from vcc.cache.blob import place
from vcc.cache.canonical import MAX_BYTES, MAX_INT
from vcc.cache.care.clock import age
from vcc.cache.digest import Digest, is_digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import FILE_FLAGS, FOLDER_FLAGS, Folder, WrongSize
from vcc.cache.manifest import Manifest
from vcc.cache.refs import MAX_REF, REFS
from vcc.cache.safety import check_folder
from vcc.cache.use import Use, uses

LABELS = ("model.dtype", "config.mode", "config.cuda_graph_mode", "target", "model.digest")
_SUM = 66
_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])
# In JSON a quotation mark inside text has a backslash before it, so `["` begins a pair and nothing
# else; a value that has a backslash is left to `Item.fields`.
_SHOWN = re.compile(r'\["(' + "|".join(map(re.escape, LABELS)) + r')","([^"\\]*)"\]')
_Ref = tuple[str, str, bytes, float]
"""Base, artifact, content, and when it was written (seconds since 1970)."""


class _Record(msgspec.Struct, frozen=True, gc=False):
    artifact: str
    created: int
    size: int
    title: str
    request: msgspec.Raw
    host_rules: msgspec.Raw
    build_ms: int = 0


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
        shown: some labels of its request: `LABELS`.
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


def read_items(store: Folder, now: float) -> Items:
    """All artifacts that have a ref.

    Args:
        store: the open `v1` folder.
        now: seconds since 1970 by the store's clock, see `clock.py`.

    Raises:
        OSError, Unsafe: the store cannot be listed.
    """
    noted, pins, held = uses(store), roots.pinned(store), roots.live(store, now)
    decoder = msgspec.json.Decoder(_Record)
    found: list[Item] = []
    bad = 0
    for base, name, data, written in _ref_files(store):
        record = _decoded(decoder, name, data)
        if record is None:
            bad += 1
            continue
        use = noted.get(name, _UNUSED)
        request = bytes(record.request).decode()
        found.append(
            Item(
                artifact=name,
                base=base,
                title=record.title,
                size=record.size,
                build_ms=record.build_ms,
                created=record.created,
                used=max(use.last, written),
                now=now,
                hits=use.count,
                pinned=name in pins,
                holders=len(held.get(name, ())),
                shown=dict(_SHOWN.findall(request)),
                request=request,
                host_rules=bytes(record.host_rules).decode(),
            )
        )
    found.sort(key=lambda item: (-item.created, item.artifact))
    return Items(tuple(found), bad)


_UNUSED = Use(0, 0.0)


def builder_of(store: Folder, item: Item) -> Mapping[str, str]:
    """The versions that built an artifact, from its manifest; empty where that cannot be read."""
    *folders, name = place(Digest(item.artifact))
    try:
        with store.below(*folders) as shelf:
            return Manifest.decode(shelf.read(name, limit=MAX_BYTES)).builder
    except (OSError, IntegrityError, WrongSize):
        return {}


def _ref_files(store: Folder) -> Iterator[_Ref]:
    """All refs; one that cannot be read has no content."""
    try:
        with store.below(REFS) as refs:
            for base in refs.names():
                if is_digest(base):
                    yield from _refs_of(refs, base)
    except FileNotFoundError:
        return


def _refs_of(refs: Folder, base: str) -> list[_Ref]:
    # `Folder.below` takes twice as long, and there may be a folder for each of 10,000 models.
    try:
        fd = os.open(base, FOLDER_FLAGS, dir_fd=refs.fd)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        check_folder(os.fstat(fd), f"{refs.path}/{base}", refs.shared)
        read = [_ref(fd, base, name) for name in os.listdir(fd) if is_digest(name)]
    finally:
        os.close(fd)
    return [ref for ref in read if ref is not None]


def _ref(folder: int, base: str, name: str) -> _Ref | None:
    """One ref; None where it was removed under us."""
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return base, name, b"", 0.0
    try:
        found = os.fstat(fd)
        fits = stat.S_ISREG(found.st_mode) and found.st_size <= MAX_REF
        return base, name, os.read(fd, found.st_size) if fits else b"", max(0.0, found.st_mtime)
    finally:
        os.close(fd)


def _decoded(decoder: msgspec.json.Decoder[_Record], name: str, data: bytes) -> _Record | None:
    """The record of a ref whose sum and name agree; None otherwise."""
    text, end = data[:-_SUM], data[-_SUM:]
    if end != b"\n%s\n" % sha256(text).hexdigest().encode():
        return None
    try:
        record = decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    bounded = 0 <= record.size <= MAX_INT and 0 <= record.created <= MAX_INT
    good = bounded and 0 <= record.build_ms <= MAX_INT and record.artifact == name
    return record if good and record.title.isprintable() else None
