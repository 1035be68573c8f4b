"""Operating-system errors as errors of the store, with advice by errno."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

from vcc.cache.errors import IntegrityError, StorageError

_HINTS = {
    errno.ENOSPC: "Free some space, or set VCC_CACHE_DIR to a place with room",
    errno.EDQUOT: "Free some of your quota, or set VCC_CACHE_DIR to another place",
    errno.EROFS: "The file system is read-only: set VCC_CACHE_DIR to a place you can write",
    errno.EACCES: "Check owner and mode, or set VCC_CACHE_DIR to a place you can write",
    errno.EPERM: "Check owner and mode, or set VCC_CACHE_DIR to a place you can write",
    errno.EIO: "The device reports a failure: check the system log and the disk",
    errno.EFBIG: "Raise the file size limit (ulimit -f)",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "The system has too many open files",
    errno.ENAMETOOLONG: "Set VCC_CACHE_DIR to a shorter path",
    errno.ENOTDIR: "A part of the path is a file or a link: set VCC_CACHE_DIR to another place",
    errno.EXDEV: "v1/tmp and the rest of the store must be on one file system: mount nothing there",
    errno.ESTALE: "The network file system lost the file: try again",
}


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class StorageFull(StorageError):
    """No room, no inodes, or the quota is used up."""

    id = "STORAGE_FULL"


class Unsafe(IntegrityError):
    """A root, folder or file that others could have prepared or changed."""

    id = "UNSAFE_ROOT"


class Foreign(Unsafe):
    """A root, folder or file that belongs to another account."""


@contextmanager
def storage(what: str, path: str, hint: str = "") -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError about `path`; as `storage_error`."""
    try:
        yield
    except OSError as error:
        raise storage_error(what, path, error, hint) from error


def storage_error(what: str, path: str, error: OSError, hint: str = "") -> StorageError:
    """The StorageError of an OSError: names the path, its owner where access failed, and advice.

    Args:
        what: could not be done, before the path.
        path: of the store, or of the file that `hint` is about.
        error: the system's.
        hint: what to do; by default what helps with a store.
    """
    why = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        why += _owner(path)
    other = "Check the folder, or set VCC_CACHE_DIR to another place"
    hint = hint or _HINTS.get(error.errno or 0, other)
    kind = StorageFull if error.errno in _FULL else StorageError
    return kind(f"cannot {what} {path}", why, hint)


def user_name(uid: int) -> str:
    """The account of a user id, for people."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _owner(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"; owner {user_name(found.st_uid)}, mode {found.st_mode & 0o7777:04o}"
