"""Marks: which files of a store something still names.

What names files: refs, live roots and pins name artifacts, manifests and indexes of shelves name
blobs. A manifest is not parsed for it: every digest that stands in it is taken for a blob. So the
formats of later versions keep their blobs, and a text that means something else keeps one too many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from vcc.cache import roots
from vcc.cache.blob import CAS, place
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest, is_digest
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.process import TMP, Life, Process
from vcc.cache.pulled import PULLED
from vcc.cache.quarantine import QUARANTINE
from vcc.cache.refs import REFS
from vcc.cache.single_flight import LOCKS
from vcc.cache.taken import SIGNATURES, closed_takers, read_taken

GEMM, NOTES, ROOTS = "gemm", "notes", "roots"
SHELVES = ((GEMM,),)
"""Places whose folders are shelves: `gemm/<GPU>/<index>`."""
KNOWN = frozenset({CAS[0], REFS, TMP, LOCKS, QUARANTINE, PULLED, GEMM, SIGNATURES, NOTES, ROOTS})
"""What this version puts below `v1`; beside anything else blobs are not collected."""

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
Index = tuple[str, ...]


class AtWork(Exception):
    """Somebody moves files just now, so what an artifact names cannot be known."""


class Marks:
    """The digests that must stay, read again at every call; what a manifest names is read once.

    Args:
        store: the open `v1` folder.
        now: seconds since 1970 by the store's clock.
        unheld: artifacts whose removal was forced: processes that use them do not count.
    """

    def __init__(self, store: Folder, now: float, unheld: Iterable[str] = ()) -> None:
        self._store, self._now, self._unheld = store, now, frozenset(unheld)
        self._named: dict[str, frozenset[str]] = {}
        self._indexed: dict[Index, frozenset[str]] = {}

    def artifacts(self) -> set[str]:
        """Artifacts with a ref, a pin, or a process that uses them.

        Raises:
            OSError, Unsafe: the store cannot be listed.
        """
        found = {name for base in names(self._store, REFS) for name in self._refs(base)}
        held = roots.live(self._store, self._now).keys() - self._unheld
        return found | roots.pinned(self._store) | held

    def marked(self, without: Iterable[str] = (), *, sure: bool = True) -> set[str]:
        """All digests that must stay.

        Args:
            without: artifacts that do not count, as if they were gone already.
            sure: False takes what another process moves just now for gone: not for removing.

        Raises:
            OSError, Unsafe: something that may name blobs cannot be read, so none may go.
            AtWork: the manifest of an artifact with a ref is not in its place, and may come back.
        """
        keep = self.artifacts().difference(without)
        found = set(keep)
        for artifact in keep:
            found |= self._surely_named(artifact) if sure else self.named(artifact)
        for index in shelf_indexes(self._store):
            if index not in self._indexed:
                self._indexed[index] = self._read(*index)
            found |= self._indexed[index]
        return found

    def named(self, artifact: str) -> frozenset[str]:
        """The digests that an artifact's manifest names; none where it is not there (any more)."""
        if artifact not in self._named:
            at = place(Digest(artifact))
            found = self._read(*at) or _digests(read_taken(self._store, at, MAX_BYTES))
            if not found:
                return found  # it may appear yet
            self._named[artifact] = found
        return self._named[artifact]

    def _surely_named(self, artifact: str) -> frozenset[str]:
        """As `named`; nothing only where it is certain that no manifest comes back.

        Another collection may have the manifest in its hands, or had when it was killed. It is
        read there too, and has a folder in `tmp/` until it is in its place again.
        """
        for _ in range(2):
            found = self.named(artifact)
            if not found and (others_at_work(self._store) or closed_takers(self._store)):
                raise AtWork(f"manifest {artifact[:12]} is being moved by another process")
        return found

    def strange(self) -> tuple[str, ...]:
        """Names below `v1` that this version does not know: a later one may keep roots there."""
        return tuple(name for name in self._store.names() if name not in KNOWN)

    def _refs(self, base: str) -> list[str]:
        return names(self._store, REFS, base) if is_digest(base) else []

    def _read(self, *where: str) -> frozenset[str]:
        *folders, name = where
        try:
            with self._store.below(*folders) as folder:
                data = folder.read(name, limit=MAX_BYTES)
        except (FileNotFoundError, WrongSize):  # over a cap: nobody loads by it
            return frozenset()
        return _digests(data)


def _digests(data: bytes | None) -> frozenset[str]:
    return frozenset(text.decode() for text in _DIGEST.findall(data or b""))


def others_at_work(store: Folder) -> bool:
    """Whether `tmp/` has a folder of another process that is not known to be gone."""
    with suppress(FileNotFoundError), store.below(TMP) as tmp:
        processes = [Process.parse(name) for name in tmp.names()]
        return any(
            one and one.pid != os.getpid() and one.life() is not Life.GONE for one in processes
        )
    return False


def shelf_indexes(store: Folder) -> tuple[Index, ...]:
    """The places of all indexes of shelves, as path components below `v1`."""
    found: list[Index] = []
    for shelf in SHELVES:
        for folder in names(store, *shelf):
            found += [(*shelf, folder, name) for name in names(store, *shelf, folder)]
    return tuple(found)


def names(store: Folder, *place: str) -> list[str]:
    """The digests that are names in a folder; none where it is not there.

    Raises:
        OSError, Unsafe: it cannot be listed. A file in the place of a folder below the first has
            no names; in place of the first one, or a link there, it hides all that is named.
    """
    try:
        with store.below(*place) as folder:
            return [name for name in folder.names() if is_digest(name)]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if len(place) == 1:
            raise
        return []


def blob_states(store: Folder) -> dict[str, os.stat_result]:
    """What the system says of each file of the content store, by digest.

    Raises:
        OSError, Unsafe: it cannot be listed.
    """
    found: dict[str, os.stat_result] = {}
    with suppress(FileNotFoundError), store.below(*CAS) as cas:
        for part in cas.names():
            with suppress(FileNotFoundError, NotADirectoryError), cas.below(part) as shelf:
                _add_states(shelf, found)
    return found


def _add_states(shelf: Folder, found: dict[str, os.stat_result]) -> None:
    with os.scandir(shelf.fd) as entries:
        for entry in entries:
            if is_digest(entry.name):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False)
