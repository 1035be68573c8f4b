"""Open folders: every step is one name below an open descriptor, and symlinks are never followed.

Owner and mode are checked on the descriptor that is then used, so nothing can be swapped between
check and use. All functions raise OSError as it comes; `Unsafe` where the rules say no.

A store whose root its group may write is *shared*: what lies in it may belong to any account, so
nothing in it counts by its owner alone, and what is made in it can be read by the group.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from vcc.cache.owners import writer
from vcc.cache.safety import check_file, check_folder, is_private

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO planted as a blob must not block the open: O_NONBLOCK.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE, FILE_MODE = 0o700, 0o600
# The set-group-id bit hands the group of a shared root down to everything that is made below.
SHARED_FOLDER_MODE, SHARED_CLOSED_MODE, SHARED_FILE_MODE = 0o2770, 0o2700, 0o640
READ_CHUNK, PIECE = 1 << 30, 1 << 22
# What a file answers that is not the regular, readable file that belongs there.
BAD_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EIO})


@dataclass(frozen=True, slots=True)
class Content:
    """What a file held when it was read.

    Args:
        data: its bytes.
        owner: user id of its owner; `owners.UNKNOWN` where others could have written it too.
        private: no other account but root could have written it: this one owns the file and the
            folders down to it from the root of the store, and nobody else may write to any of them.
    """

    data: bytes
    owner: int
    private: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """An open directory.

    Args:
        fd: its descriptor.
        path: for messages only.
        private: as in `Content`.
        shared: whether it belongs to a store that its group may write.
    """

    fd: int
    path: str
    private: bool = False
    shared: bool = False

    @contextmanager
    def below(self, *names: str, create: bool = False, closed: bool = False) -> Iterator[Folder]:
        """Open the folder under these names; with `create` the missing ones are made.

        Args:
            names: path components.
            create: make what is missing: mode 0700, in a shared store for its group too.
            closed: what is made is for this account alone, in a shared store too.

        Raises:
            OSError: not there, not a folder, a symlink.
            Unsafe: writable by everyone or, unless the store is shared, owned by someone else.
        """
        fd, private = os.dup(self.fd), self.private
        try:
            for name in names:
                if create:
                    make_private(fd, name, self._folder_mode(closed))
                inner = _step(fd, name, f"{self.path}/{name}", self.shared)
                os.close(fd)
                fd = inner
                private = private and is_private(os.fstat(fd))
            yield Folder(fd, "/".join((self.path, *names)), private, self.shared)
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        """The names in the folder, sorted."""
        return sorted(os.listdir(self.fd))

    def read(
        self, name: str, *, size: int | None = None, limit: int, accepted: bool = False
    ) -> bytes:
        """The bytes of a regular file of an accepted owner; see `content`."""
        return self.content(name, size=size, limit=limit, accepted=accepted).data

    def content(
        self, name: str, *, size: int | None = None, limit: int, accepted: bool = False
    ) -> Content:
        """The bytes of a regular file, and whose they are.

        Args:
            name: one path component.
            size: the size it must have; None accepts any up to `limit`.
            limit: most bytes to read.
            accepted: its owner must be an accepted one in a shared store too.

        Raises:
            WrongSize: not of that size, over the limit, or changed while it was read.
            Unsafe: not a regular file, or not one of ours.
            OSError: as the system says (ELOOP for a symlink).
        """
        with self.opened(name, size=size, limit=limit, accepted=accepted) as (fd, found):
            private = self.private and is_private(found)
            return Content(_read_all(fd, found.st_size), writer(found), private)

    @contextmanager
    def opened(
        self, name: str, *, size: int | None = None, limit: int, accepted: bool = False
    ) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor of a regular file and what the system says of it; as `content`."""
        fd = os.open(name, FILE_FLAGS, dir_fd=self.fd)
        try:
            found = os.fstat(fd)
            check_file(found, f"{self.path}/{name}", self.shared and not accepted)
            wanted = found.st_size if size is None else size
            if found.st_size != wanted or wanted > limit:
                raise WrongSize(found.st_size, wanted if wanted <= limit else limit)
            yield fd, found
        finally:
            os.close(fd)

    def pieces(self, name: str, size: int = PIECE) -> Iterator[bytes]:
        """The bytes of a file in pieces, so that no file is too large to be looked through.

        Raises:
            Unsafe, OSError: as `content`.
        """
        fd = os.open(name, FILE_FLAGS, dir_fd=self.fd)
        try:
            check_file(os.fstat(fd), f"{self.path}/{name}", self.shared)
            while piece := os.read(fd, size):
                yield piece
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Make a new file, write all of `data` and sync it.

        Its mode is 0600 whatever the umask; in a shared store the group may read it.
        """
        fd = os.open(name, NEW_FLAGS, FILE_MODE, dir_fd=self.fd)
        try:
            os.fchmod(fd, self._file_mode(fd))
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def clear(self, spare: Callable[[str], bool] = lambda name: False) -> None:
        """Remove all files in the folder but those whose names are to be spared."""
        for name in os.listdir(self.fd):
            if not spare(name):
                os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make the folder's entries durable."""
        sync_folder(self.fd)

    def _folder_mode(self, closed: bool) -> int:
        if not self.shared:
            return FOLDER_MODE
        return SHARED_CLOSED_MODE if closed else SHARED_FOLDER_MODE

    def _file_mode(self, fd: int) -> int:
        """Readable by the group only where that is the store's group, not the writer's own."""
        same_group = self.shared and os.fstat(fd).st_gid == os.fstat(self.fd).st_gid
        return SHARED_FILE_MODE if same_group else FILE_MODE


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


def make_private(fd: int, name: str, mode: int = FOLDER_MODE) -> None:
    """Make a durable folder below `fd`, of this mode whatever the umask; an existing one stays.

    Rights of a group are given to the group of the folder above it only, else to nobody.
    """
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=fd)
    except FileExistsError:
        return
    # The umask may have taken our own rights: O_PATH needs none, and names the very folder.
    made = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if mode != FOLDER_MODE and not _has_group_of(made, fd):
            mode = FOLDER_MODE
        if stat.S_IMODE(os.fstat(made).st_mode) != mode:
            os.chmod(f"/proc/self/fd/{made}", mode)
    finally:
        os.close(made)
    sync_folder(fd)


def _has_group_of(made: int, above: int) -> bool:
    """Give a new folder the group of the one above it; False where that is not allowed."""
    group = os.fstat(above).st_gid
    if os.fstat(made).st_gid != group:
        with suppress(OSError):
            os.chown(f"/proc/self/fd/{made}", -1, group)
    return os.fstat(made).st_gid == group


def _step(fd: int, name: str, path: str, shared: bool) -> int:
    inner = os.open(name, FOLDER_FLAGS, dir_fd=fd)
    try:
        check_folder(os.fstat(inner), path, shared)
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
