"""Reading the whole content store once: which blobs are what their names say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from vcc.cache.blob import CAS, THREADS
from vcc.cache.digest import is_digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import Folder


@dataclass(slots=True)
class Content:
    """What the content store holds.

    Args:
        good: bytes of each blob that is right, by digest.
        bad: what is wrong with each other one.
        size: bytes that were read.
    """

    good: dict[str, int] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    size: int = 0


def read_content(store: Folder) -> Content:
    """Compare the SHA-256 of every blob with its name, in threads.

    Args:
        store: the open `v1` folder.

    Raises:
        OSError, Unsafe: the content store cannot be listed.
    """
    content = Content()
    pool = ThreadPoolExecutor(THREADS, "vcc-check")
    with pool, suppress(FileNotFoundError), store.below(*CAS) as cas:
        for found in pool.map(lambda part: list(_part(cas, part)), cas.names()):
            for name, size, reason in found:
                _sort_in(content, name, size, reason)
    return content


def _sort_in(content: Content, name: str, size: int, reason: str) -> None:
    content.size += size
    if reason:
        content.bad[name] = reason
    else:
        content.good[name] = size


def _part(cas: Folder, part: str) -> Iterator[tuple[str, int, str]]:
    with suppress(FileNotFoundError, NotADirectoryError), cas.below(part) as shelf:
        for name in shelf.names():
            if is_digest(name):
                with suppress(FileNotFoundError):  # collected under us
                    yield name, *_twice(shelf, name)


def _twice(shelf: Folder, name: str) -> tuple[int, str]:
    """A bad file may be in the middle of being replaced by a good one."""
    size, reason = _verdict(shelf, name)
    return _verdict(shelf, name) if reason else (size, reason)


def _verdict(shelf: Folder, name: str) -> tuple[int, str]:
    """Bytes of a blob, and what is wrong with it; empty when nothing is."""
    digest, size = sha256(), 0
    try:
        for piece in shelf.pieces(name):
            digest.update(piece)
            size += len(piece)
    except FileNotFoundError:
        raise
    except (OSError, IntegrityError) as error:
        return size, str(error)
    return size, "" if digest.hexdigest() == name else "its digest does not match"
