"""Open folders: every step is one name below an open descriptor, and symlinks are never followed.

Owner and mode are checked on the descriptor that is then used, so nothing can be swapped between
check and use. All functions raise OSError as it comes; `Unsafe` where the rules say no.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vcc.cache.trouble import Foreign, Unsafe, user_name

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO planted as a blob must not block the open: O_NONBLOCK.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE, FILE_MODE = 0o700, 0o600
READ_CHUNK = 1 << 26
# What a file answers that is not the regular, readable file that belongs there.
BAD_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EIO})


@dataclass(frozen=True, slots=True)
class Folder:
    """An open directory; `path` is for messages only."""

    fd: int
    path: str

    @contextmanager
    def below(self, *names: str, create: bool = False) -> Iterator[Folder]:
        """Open the folder under these names; with `create` the missing ones are made, mode 0700.

        Raises:
            OSError: not there, not a folder, a symlink.
            Unsafe: owned by someone else or writable by everyone.
        """
        fd = os.dup(self.fd)
        try:
            for name in names:
                inner = _step(fd, name, f"{self.path}/{name}", create)
                os.close(fd)
                fd = inner
            yield Folder(fd, "/".join((self.path, *names)))
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        """The names in the folder, sorted."""
        return sorted(os.listdir(self.fd))

    def read(self, name: str, *, size: int | None = None, limit: int) -> bytes:
        """The bytes of a regular file of an accepted owner.

        Args:
            name: one path component.
            size: the size it must have; None accepts any up to `limit`.
            limit: most bytes to read.

        Raises:
            WrongSize: not of that size, over the limit, or changed while it was read.
            Unsafe: not a regular file, or not one of ours.
            OSError: as the system says (ELOOP for a symlink).
        """
        fd = os.open(name, FILE_FLAGS, dir_fd=self.fd)
        try:
            found = os.fstat(fd)
            _check_file(found, f"{self.path}/{name}")
            wanted = found.st_size if size is None else size
            if found.st_size != wanted or wanted > limit:
                raise WrongSize(found.st_size, wanted if wanted <= limit else limit)
            return _read_all(fd, wanted)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Make a new file, mode 0600 whatever the umask, write all of `data` and sync it."""
        fd = os.open(name, NEW_FLAGS, FILE_MODE, dir_fd=self.fd)
        try:
            os.fchmod(fd, FILE_MODE)
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def clear(self) -> None:
        """Remove all files in the folder."""
        for name in os.listdir(self.fd):
            os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make the folder's entries durable."""
        sync_folder(self.fd)


class WrongSize(Exception):
    """A file whose size is not the expected one."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(f"{found} bytes, {wanted} expected")


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte: a short write is continued, zero progress is an error."""
    rest = memoryview(data).cast("B")
    while rest:
        count = os.write(fd, rest)
        if count == 0:
            raise OSError(errno.EIO, "a write made no progress")
        rest = rest[count:]


def sync_folder(fd: int) -> None:
    """Make a folder's entries durable; file systems that cannot do it for folders pass."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def make_private(fd: int, name: str) -> None:
    """Make a durable folder, mode 0700 whatever the umask, below `fd`; an existing one stays."""
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=fd)
    except FileExistsError:
        return
    # The umask may have taken our own rights: O_PATH needs none, and names the very folder.
    made = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if stat.S_IMODE(os.fstat(made).st_mode) & 0o777 != FOLDER_MODE:
            os.chmod(f"/proc/self/fd/{made}", FOLDER_MODE)
    finally:
        os.close(made)
    sync_folder(fd)


def check_folder(found: os.stat_result, path: str) -> None:
    """Refuse a folder that is not ours or that everyone may change."""
    _check_owner(found, path)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise Unsafe(
            f"{path} is not safe to use",
            f"every account can change it (mode {found.st_mode & 0o7777:04o})",
            f"chmod o-w {path}, or set VCC_CACHE_DIR to a folder of your own",
        )


def _check_file(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unsafe(f"{path} is not a regular file", hint="Remove it")
    _check_owner(found, path)
    if found.st_mode & stat.S_IWOTH:
        raise Unsafe(f"{path} can be changed by every account", hint=f"Remove {path}")


def _check_owner(found: os.stat_result, path: str) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise Foreign(
            f"{path} is not safe to use",
            f"it belongs to {user_name(found.st_uid)}, you are {user_name(os.geteuid())}",
            f"chown it to your account if you trust its content (sudo chown -R {os.geteuid()} "
            f"{path}), or set VCC_CACHE_DIR to a folder of your own",
        )


def _step(fd: int, name: str, path: str, create: bool) -> int:
    if create:
        make_private(fd, name)
    inner = os.open(name, FOLDER_FLAGS, dir_fd=fd)
    try:
        check_folder(os.fstat(inner), path)
    except BaseException:
        os.close(inner)
        raise
    return inner


def _read_all(fd: int, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = os.read(fd, min(left, READ_CHUNK))
        if not part:
            raise WrongSize(size - left, size)
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
