"""The index of lists: what refs say, in one file, so that thousands are not opened one by one.

    notes/index = magic sum body
    magic       = "vcc-index 3" LF
    sum         = XXH3-128 of body, 16 bytes
    body        = MessagePack of Index

Heuristic data: lost, damaged or from another version, it is made anew, and nothing but a list reads
it. What a ref says follows from its artifact's id, so no row is out of date; a folder is listed
again when its time of change is another, or was so late that a change could hide in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec
import xxhash

from vcc.cache.care.clock import now_of
from vcc.cache.care.rows import Base, read_base
from vcc.cache.digest import is_digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import FILE_MODE, NEW_FLAGS, Folder, WrongSize, write_all
from vcc.cache.notes import NOTES
from vcc.cache.publish import own_folder
from vcc.cache.refs import REFS
from vcc.cache.safety import check_folder
from vcc.cache.trouble import Unsafe

INDEX, MAGIC = "index", b"vcc-index 3\n"
MOST_BYTES = 256 << 20
WORTH = 500
"""Refs that a list must have opened before an index is written for the next one."""
RACY_NS = 2 * 10**9
_SUM = 16


class Index(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All bases, and when they were read: nanoseconds since 1970 by the store's clock."""

    read: int
    bases: tuple[Base, ...]


def indexed_bases(store: Folder) -> tuple[Base, ...]:
    """All refs of the store, by the index where it holds; the index is brought up to date.

    Args:
        store: the open `v1` folder.

    Raises:
        OSError, Unsafe: the refs cannot be listed.
    """
    index = load_index(store)
    known = {base.base: base for base in index.bases}
    read, opened = int(now_of(store) * 1e9), 0
    found: list[Base] = []
    with suppress(FileNotFoundError), store.below(REFS) as refs:
        for name in filter(is_digest, refs.names()):
            old = known.get(name)
            if old is not None and _holds(refs, old, index.read):
                found.append(old)
            elif (base := read_base(refs, name)) is not None:
                found.append(base)
                opened += len(base.rows) + 1
    if opened >= WORTH:
        save_index(store, Index(read, tuple(base for base in found if not base.bad)))
    return tuple(found)


def all_bases(store: Folder) -> tuple[Base, ...]:
    """All refs of the store, each read now; raises as `indexed_bases`."""
    with suppress(FileNotFoundError), store.below(REFS) as refs:
        return tuple(_present(read_base(refs, name) for name in filter(is_digest, refs.names())))
    return ()


def load_index(store: Folder) -> Index:
    """The index; an empty one where there is none that this version can read."""
    try:
        with store.below(NOTES) as notes:
            data = notes.read(INDEX, limit=MOST_BYTES)
        head, body = data[: len(MAGIC) + _SUM], memoryview(data)[len(MAGIC) + _SUM :]
        if head == MAGIC + xxhash.xxh3_128_digest(body):
            return msgspec.msgpack.decode(body, type=Index)
    except (OSError, IntegrityError, WrongSize, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    return Index(0, ())


def save_index(store: Folder, index: Index) -> None:
    """Put an index in place of the one before, without syncing; never raises."""
    body = msgspec.msgpack.encode(index)
    if len(body) > MOST_BYTES:
        return
    with suppress(OSError, Unsafe), own_folder(store) as own, store.below(NOTES, create=True) as to:
        fd = os.open(INDEX, NEW_FLAGS, FILE_MODE, dir_fd=own.fd)
        try:
            write_all(fd, MAGIC + xxhash.xxh3_128_digest(body))
            write_all(fd, body)
        finally:
            os.close(fd)
        os.rename(INDEX, INDEX, src_dir_fd=own.fd, dst_dir_fd=to.fd)


def _holds(refs: Folder, old: Base, read: int) -> bool:
    """Whether a folder of refs is as it was when the index was made."""
    try:
        state = os.stat(old.base, dir_fd=refs.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    check_folder(state, f"{refs.path}/{old.base}", refs.shared)
    return state.st_mtime_ns == old.changed < read - RACY_NS


def _present(bases: Iterable[Base | None]) -> Iterable[Base]:
    return (base for base in bases if base is not None)
