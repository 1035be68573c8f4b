"""Shelves: named places of the store for small indexes over blobs that belong to no artifact.

    v1/<shelf...>/<SHA-256 of the index>      the index, canonical JSON
    v1/cas/sha256/..                          its blobs

An index is never changed: a later one is added beside it, and readers join them. So writers need no
lock and a reader sees each index whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcc.cache import canonical
from vcc.cache.blob import read_blob
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest, is_digest
from vcc.cache.errors import IntegrityError, MissingArtifact, VccError
from vcc.cache.folder import BAD_FILE, Folder, WrongSize
from vcc.cache.quarantine import set_aside
from vcc.cache.root import opened
from vcc.cache.trouble import storage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shelf:
    """A shelf of the store at `root`; `place` are its path components below `v1`."""

    root: Path
    place: tuple[str, ...]

    def indexes(self) -> tuple[Mapping[str, Any], ...]:
        """All readable indexes, sorted by digest; damaged ones are set aside with a warning.

        Raises:
            StorageError, Unsafe: the store cannot be read. One that is not there has none.
        """
        with self._reading() as store:
            if store is None:
                return ()
            try:
                with store.below(*self.place) as shelf:
                    names = [name for name in shelf.names() if is_digest(name)]
                    found = [self._index(store, shelf, name) for name in names]
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return tuple(index for index in found if index is not None)

    def shelves(self) -> tuple[str, ...]:
        """Names of the shelves below this one; errors as `indexes`."""
        with self._reading() as store:
            if store is None:
                return ()
            try:
                with store.below(*self.place) as folder:
                    return tuple(name for name in folder.names() if is_digest(name))
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def read(self, digest: str, size: int) -> bytes:
        """The verified bytes of a blob that an index names.

        Raises:
            MissingArtifact, Damaged, StorageError, Unsafe: as for an artifact's blob.
        """
        with self._reading() as store:
            if store is None:
                raise MissingArtifact(f"the store at {self.root} is gone")
            return read_blob(store, Digest(digest), size)

    def publish(self, index: Mapping[str, Any], blobs: Mapping[str, bytes]) -> str:
        """Store blobs (SHA-256 in hex to bytes) and then the index over them; its digest.

        Raises:
            StorageError, Unsafe: it could not be written; nothing of it is visible.
            FormatError: the index breaks a cap or has no canonical text.
        """
        from vcc.cache import publish as publishing  # a reader does not pay for the import

        text = canonical.encode(dict(index), "index")
        name = Digest.of(text).hex
        with (
            storage("write to the store at", str(self.root)),
            opened(self.root, create=True) as store,
            publishing.own_folder(store) as own,
        ):
            parts = {Digest(digest): data for digest, data in blobs.items()}
            publishing.publish_content(store, own, parts)
            with store.below(*self.place, create=True) as shelf:
                publishing.sync_down(store, self.place)
                publishing.add_file(store, own, shelf, name, text, lambda: _read(shelf, name))
                shelf.sync()
        return name

    def _index(self, store: Folder, shelf: Folder, name: str) -> Mapping[str, Any] | None:
        try:
            return _read(shelf, name)
        except FileNotFoundError:
            return None
        except (VccError, WrongSize, OSError) as error:
            if isinstance(error, OSError) and error.errno not in BAD_FILE:
                raise
            _log.warning("%s/%s is damaged and was set aside: %s", shelf.path, name, error)
            set_aside(store, shelf, name)
            return None

    @contextmanager
    def _reading(self) -> Iterator[Folder | None]:
        with storage("read the store at", str(self.root)), ExitStack() as stack:
            try:
                store = stack.enter_context(opened(self.root, create=False))
            except FileNotFoundError:
                store = None
            yield store


def _read(shelf: Folder, name: str) -> Mapping[str, Any]:
    data = shelf.read(name, limit=MAX_BYTES)
    if Digest.of(data).hex != name:
        raise IntegrityError("an index is damaged", "its digest does not match")
    value = canonical.decode(data, "index")
    if not isinstance(value, dict):
        raise IntegrityError("an index is damaged", "it is no object")
    return value
