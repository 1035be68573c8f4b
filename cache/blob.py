"""Blobs: bytes named by their SHA-256, read once and verified before anyone sees them.

cas/sha256/<first two digits>/<digest>
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from vcc.cache.digest import Digest, xxh3
from vcc.cache.errors import IntegrityError, MissingArtifact
from vcc.cache.folder import BAD_FILE, Content, Folder, WrongSize
from vcc.cache.trouble import storage_error

T = TypeVar("T")
CAS = ("cas", "sha256")
MAX_BLOB = 1 << 40
THREADS = 4
FEW = 2 << 20


class Damaged(IntegrityError):
    """Stored bytes that are not what their digest says.

    Args:
        what, why, hint: as in every error.
        digest: the blob or manifest that is damaged; None for a ref.
    """

    id = "DAMAGED"

    def __init__(self, what: str, why: str, hint: str = "", digest: Digest | None = None) -> None:
        super().__init__(what, why, hint)
        self.digest = digest


def place(digest: Digest) -> tuple[str, str, str, str]:
    """The path components of a blob below `v1`."""
    return (*CAS, digest.hex[:2], digest.hex)


def has_blob(store: Folder, digest: Digest) -> bool:
    """Whether a file lies at the place of a blob; says nothing about its bytes.

    Raises:
        OSError, Unsafe: the system or the rules of the store refuse to look.
    """
    *folders, name = place(digest)
    try:
        with store.below(*folders) as shelf:
            os.stat(name, dir_fd=shelf.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def read_blob(store: Folder, digest: Digest, size: int | None, limit: int = MAX_BLOB) -> bytes:
    """The bytes of a blob, verified by SHA-256; see `read_content`."""
    return read_content(store, digest, size, limit).data


def read_content(
    store: Folder, digest: Digest, size: int | None, limit: int = MAX_BLOB, *, fast: str = ""
) -> Content:
    """The verified bytes of a blob, and whose they are.

    Args:
        store: the open `v1` folder.
        digest: SHA-256 that the bytes must have.
        size: bytes that the manifest promises; None where only the digest is known.
        limit: most bytes to read.
        fast: XXH3-128 that the manifest has for these bytes. It is compared instead of SHA-256
            where no other account could have written them; empty: always SHA-256.

    Raises:
        MissingArtifact: the blob is not there (gone under a reader, or never written).
        Damaged: wrong size, wrong bytes, not a regular file, or the disk cannot read it.
        StorageError: the system refuses to open it.
    """
    *folders, name = place(digest)
    with explained(digest, f"{store.path}/{'/'.join(place(digest))}"):
        found = retried(lambda: _read(store, tuple(folders), name, size, limit))
    compare(found.data, digest, fast if found.private else "")
    return found


def sought(store: Folder, digest: Digest, read: Callable[[], T]) -> T:
    """Read a blob; one that a killed sweep had taken is given back first.

    Args:
        store: the open `v1` folder, of a store that may be written.
        digest: which blob.
        read: reads it, and raises as `read_content`.
    """
    try:
        return read()
    except MissingArtifact:
        from vcc.cache.taken import give_back  # what is there does not pay for the import

        if not give_back(store, place(digest)):
            raise
    return read()


def compare(data: bytes | memoryview, digest: Digest, fast: str = "") -> None:
    """Refuse bytes that are not what their digest says: XXH3-128 `fast`, or SHA-256 without it.

    Raises:
        Damaged: they are not.
    """
    if not (xxh3(data) == fast if fast else Digest.of(data) == digest):
        raise Damaged(f"blob {digest.short} is damaged", "its digest does not match", "", digest)


def read_blobs(read: Callable[[str], T], names: Iterable[str], size: int = FEW) -> dict[str, T]:
    """Read several blobs, many bytes at once: hashing releases the interpreter lock.

    Args:
        read: verified bytes of one.
        names: which.
        size: bytes of all together; few are read sooner than threads start.
    """
    wanted = tuple(dict.fromkeys(names))
    if len(wanted) < 2 or size < FEW:
        return {name: read(name) for name in wanted}
    from concurrent.futures import ThreadPoolExecutor  # a look-up does not pay for the import

    with ThreadPoolExecutor(min(THREADS, len(wanted)), "vcc-verify") as pool:
        return dict(zip(wanted, pool.map(read, wanted), strict=True))


def _read(
    store: Folder, folders: tuple[str, ...], name: str, size: int | None, limit: int
) -> Content:
    with store.below(*folders) as shelf:
        return shelf.content(name, size=size, limit=limit)


def retried(read: Callable[[], T]) -> T:
    """A network file system may lose a handle once (ESTALE): open again, once."""
    try:
        return read()
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return read()


@contextmanager
def explained(digest: Digest, path: str) -> Iterator[None]:
    """Sort what can go wrong at a blob into a miss, damage and storage trouble.

    Raises:
        MissingArtifact: the body found no file.
        Damaged: the file is not the blob.
        StorageError: the system failed.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingArtifact(f"blob {digest.short} is not in the store", str(error)) from error
    except WrongSize as error:
        raise Damaged(f"blob {digest.short} is damaged", str(error), "", digest) from error
    except IntegrityError as error:
        raise Damaged(error.what, error.why, error.hint, digest) from error
    except OSError as error:
        if error.errno in BAD_FILE:
            raise Damaged(
                f"blob {digest.short} cannot be read", error.strerror or "", "", digest
            ) from error
        raise storage_error("read", path, error) from error
