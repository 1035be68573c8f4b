"""Marks of artifacts that came from elsewhere: a remote or a pack, not a build of this account.

    pulled/<artifact id>      canonical JSON of Mark, written before the artifact's ref

The bytes of a pulled artifact are verified as all are. A mark says that nobody here made them, and
the policies of trust ask for it.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from vcc.cache import canonical
from vcc.cache.canonical import MAX_INT, FormatError
from vcc.cache.folder import Folder, WrongSize

PULLED = "pulled"
MAX_MARK = 4096


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Where an artifact came from.

    Args:
        url: the remote without credentials, or `pack`.
        when: seconds since 1970.
        by_hand: a person asked for it by name (`vcc pull`, `vcc import`); False where a miss did.
    """

    url: str
    when: int
    by_hand: bool = False


def write_mark(store: Folder, own: Folder, artifact: str, mark: Mark) -> None:
    """Note where `artifact` came from; an older mark is replaced.

    Args:
        store: the open `v1` folder.
        own: the writer's own folder below `tmp/`.

    Raises:
        OSError, Unsafe: it could not be written.
    """
    data = canonical.encode(msgspec.to_builtins(mark), "mark")
    temp = os.urandom(8).hex()
    own.write(temp, data)
    with store.below(PULLED, create=True) as marks:
        os.rename(temp, artifact, src_dir_fd=own.fd, dst_dir_fd=marks.fd)
        marks.sync()
    store.sync()


def read_mark(store: Folder, artifact: str) -> Mark | None:
    """The mark of an artifact; None where there is none.

    Raises:
        FormatError: there is one that cannot be read; nothing is known of where it came from.
        OSError, Unsafe: the system or the rules of the store refuse.
    """
    try:
        data = _read(store, artifact)
        if data is None:
            return None
    except WrongSize as error:
        raise FormatError("the mark of an artifact is damaged", str(error)) from error
    try:
        mark = msgspec.convert(canonical.decode(data, "mark"), Mark)
    except msgspec.ValidationError as error:
        raise FormatError("the mark of an artifact has a wrong field", str(error)) from error
    if not 0 <= mark.when <= MAX_INT:
        raise FormatError("the mark of an artifact has a time out of bounds")
    return mark


def _read(store: Folder, artifact: str) -> bytes | None:
    try:
        with store.below(PULLED) as marks:
            return marks.read(artifact, limit=MAX_MARK)
    except FileNotFoundError:  # a sweep that has it, or had, must not make a pulled one ours
        from vcc.cache.taken import read_taken

        return read_taken(store, (PULLED, artifact), MAX_MARK)


def remove_mark(store: Folder, artifact: str) -> None:
    """Forget where an artifact came from: it was built here, or is gone."""
    with suppress(OSError), store.below(PULLED) as marks:
        os.unlink(artifact, dir_fd=marks.fd)
