"""Shelves: named places of the store for small indexes over blobs that belong to no artifact.

    v1/<shelf...>/<SHA-256 of the index>      the index, canonical JSON
    v1/cas/sha256/..                          its blobs

An index is never changed: a later one is added beside it, and readers join them. So writers need no
lock and a reader sees each index whole or not at all. An index bears no signature: it counts when
this account, root or a listed account alone can have written it, and is passed over else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vcc.cache import canonical
from vcc.cache.blob import read_blob, sought
from vcc.cache.bundle import Bundle, opened_bundle
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest, is_digest
from vcc.cache.errors import IntegrityError, MissingArtifact, VccError
from vcc.cache.folder import BAD_FILE, Folder, WrongSize
from vcc.cache.owners import UNKNOWN
from vcc.cache.quarantine import set_aside
from vcc.cache.root import opened
from vcc.cache.trouble import Foreign, storage

_log = logging.getLogger(__name__)
Index = TypeVar("Index")


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
        return self.read_indexes(_object)

    def read_indexes(self, decode: Callable[[bytes], Index | None]) -> tuple[Index, ...]:
        """As `indexes`, by a reader of the caller's own.

        Args:
            decode: from the text of an index, whose digest is right, to a value; None for one that
                is of no interest. An IntegrityError says that it is damaged.
        """
        with self._reading() as store:
            if store is None:
                return ()
            try:
                with store.below(*self.place) as shelf:
                    names = [name for name in shelf.names() if is_digest(name)]
                    found = [self._index(store, shelf, name, decode) for name in names]
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
        with self._present() as store:
            return sought(store, Digest(digest), lambda: read_blob(store, Digest(digest), size))

    @contextmanager
    def bundle(self, digest: str, size: int) -> Iterator[Bundle]:
        """A bundle that an index names, open; errors as `read`."""
        with ExitStack() as stack:
            with self._present() as store:
                name = Digest(digest)

                def opening() -> Bundle:
                    return stack.enter_context(opened_bundle(store, name, size))

                bundle = sought(store, name, opening)
            yield bundle

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
            publishing.put_back(store, own, parts)
        return name

    def _index(
        self, store: Folder, shelf: Folder, name: str, decode: Callable[[bytes], Index | None]
    ) -> Index | None:
        try:
            return decode(_text(shelf, name))
        except FileNotFoundError:
            return None
        except Foreign as error:
            _log.info("%s/%s is not used: %s", shelf.path, name, error)
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

    @contextmanager
    def _present(self) -> Iterator[Folder]:
        with self._reading() as store:
            if store is None:
                raise MissingArtifact(f"the store at {self.root} is gone")
            yield store


def _read(shelf: Folder, name: str) -> Mapping[str, Any]:
    return _object(_text(shelf, name))


def _text(shelf: Folder, name: str) -> bytes:
    found = shelf.content(name, limit=MAX_BYTES, accepted=True)
    if found.owner == UNKNOWN:
        raise Foreign(f"{shelf.path}/{name} is not used", "others than its owner can change it")
    if Digest.of(found.data).hex != name:
        raise IntegrityError("an index is damaged", "its digest does not match")
    return found.data


def _object(data: bytes) -> Mapping[str, Any]:
    value = canonical.decode(data, "index")
    if not isinstance(value, dict):
        raise IntegrityError("an index is damaged", "it is no object")
    return value
