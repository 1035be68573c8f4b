"""A remote in a directory: a share, a mounted bucket, an exported disk.

Its files belong to whoever fills it and are trusted as little as those of any remote.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from vcc.cache.errors import RemoteError, VccError
from vcc.cache.folder import FILE_FLAGS, FOLDER_FLAGS, NEW_FLAGS, sync_folder, write_all
from vcc.cache.publish import NO_LINKS
from vcc.cache.remote.base import Absent, Blob, Denied, Passing, Sink
from vcc.cache.remote.url import RemoteUrl

CHUNK = 1 << 20
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)


class NotThere(RemoteError):
    """The directory itself is missing."""


@dataclass(frozen=True, slots=True)
class FileRemote:
    """The directory of a file:// URL; see `Remote`."""

    place: RemoteUrl

    public = False
    is_registry = False

    @property
    def url(self) -> str:
        """See `Remote`."""
        return self.place.shown

    def size(self, path: str) -> int | None:
        """See `Remote`."""
        try:
            with self._opened(path, f"looking for {path}") as fd:
                return os.fstat(fd).st_size
        except (Absent, NotThere):
            return None

    def get(self, path: str, sink: Sink, *, limit: int, start: int = 0) -> None:
        """See `Remote`."""
        for part in self._parts(path, limit, start):
            sink(part)  # its troubles are not the remote's

    def put(
        self, path: str, data: bytes, *, replace: bool = False, keeps: Sequence[Blob] = ()
    ) -> bool:
        """See `Remote`."""
        *folders, name = path.split("/")
        with _explained(f"writing {path}"), self._folder(folders, create=True) as folder:
            temp = f".{name[:80]}.{os.urandom(8).hex()}"
            try:
                _write(temp, data, folder)
                made = _named(temp, name, folder, replace)
                sync_folder(folder)
                return made
            finally:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder)

    def paths(self, prefix: str) -> Iterator[str]:
        """See `Remote`."""
        with _explained(f"listing {prefix}"):
            yield from self._below(prefix.strip("/").split("/"))

    def close(self) -> None:
        """See `Remote`."""

    def _below(self, folders: list[str]) -> Iterator[str]:
        try:
            with self._folder(folders) as fd:
                names = [name for name in os.listdir(fd) if not name.startswith(".")]
                inner = {name: _is_folder(fd, name) for name in names}
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise
        for name, deeper in inner.items():
            if deeper:
                yield from self._below([*folders, name])
            else:
                yield "/".join((*folders, name))

    def _parts(self, path: str, limit: int, start: int) -> Iterator[bytes]:
        what, left = f"reading {path}", limit - start
        with self._opened(path, what) as fd:
            if os.fstat(fd).st_size > limit:
                raise RemoteError(f"{what}: it is too long", f"{limit} bytes belong there")
            os.lseek(fd, start, os.SEEK_SET)
            while part := os.read(fd, min(CHUNK, left + 1)):
                left -= len(part)
                if left < 0:
                    raise RemoteError(f"{what}: it grows", f"{limit} bytes belong there")
                yield part

    @contextmanager
    def _opened(self, path: str, what: str) -> Iterator[int]:
        """A regular file below the root, no symlink on the way to it."""
        *folders, name = path.split("/")
        with _explained(what), self._folder(folders) as folder:
            fd = os.open(name, FILE_FLAGS, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise RemoteError(f"{what}: it is not a regular file")
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _folder(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        fd = self._root(create)
        try:
            for name in names:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                    sync_folder(fd)  # also for one that another process has just made
                inner = os.open(name, FOLDER_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _root(self, create: bool) -> int:
        """The open root. Only its last folder is made: a share may not be mounted."""
        path = self.place.path
        try:
            if create and not os.path.isdir(path):
                with suppress(FileExistsError):  # several threads push at once
                    os.mkdir(path)
                _sync_path(os.path.dirname(path))
            return os.open(path, FOLDER_FLAGS & ~os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            raise NotThere(
                f"the remote {self.url} is not there",
                error.strerror or "",
                "Mount it, or push to it first",
            ) from error


def _sync_path(path: str) -> None:
    fd = os.open(path, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        sync_folder(fd)
    finally:
        os.close(fd)


def _write(name: str, data: bytes, folder: int) -> None:
    # The umask decides who may read: a share is for others too.
    fd = os.open(name, NEW_FLAGS, 0o666, dir_fd=folder)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def _named(temp: str, name: str, folder: int, replace: bool) -> bool:
    """Give a complete file its name; False where that is taken."""
    if not replace:
        try:
            os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if name in os.listdir(folder):
                return False
    # Without links a race may replace: a name in the layout always means the same bytes.
    os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _is_folder(fd: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except VccError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _NOT_THERE:
            raise Absent(f"{what}: the remote does not have it", why) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Denied(f"{what}: the remote refuses", why) from error
        if error.errno in (errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN):
            raise Passing(f"{what}: the remote fails", why) from error
        raise RemoteError(f"{what}: the remote fails", why) from error
