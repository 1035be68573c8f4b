"""Opening the root of a store: refused where another account could have prepared it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcc.cache.folder import FOLDER_FLAGS, Folder, check_folder, make_private
from vcc.cache.trouble import Unsafe, user_name

LAYOUT = "v1"


@contextmanager
def opened(root: Path, *, create: bool) -> Iterator[Folder]:
    """The folder `<root>/v1`.

    Args:
        root: absolute path; a symlink is accepted only when you or root made it.
        create: make what is missing, mode 0700.

    Raises:
        OSError: not there and not to be made, or not accessible.
        Unsafe: root, its parent or `v1` is owned by someone else or writable by everyone.
    """
    path = _resolved(root)
    if create:
        _make(path)
    _check_parent(path.parent)
    fd = os.open(path, FOLDER_FLAGS)
    try:
        check_folder(os.fstat(fd), str(path))
        with Folder(fd, str(path)).below(LAYOUT, create=create) as folder:
            yield folder
    finally:
        os.close(fd)


def _resolved(root: Path) -> Path:
    """The root with symlinks resolved, once the link itself is known to be ours."""
    try:
        found = os.lstat(root)
    except FileNotFoundError:
        return Path(os.path.realpath(root))
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (os.geteuid(), 0):
        raise Unsafe(
            f"{root} is not safe to use",
            f"it is a symlink made by {user_name(found.st_uid)}",
            f"Remove it, or set VCC_CACHE_DIR to a folder of your own (you are uid {os.geteuid()})",
        )
    return Path(os.path.realpath(root))


def _make(path: Path) -> None:
    if path.exists():
        return
    if path.parent != path:
        _make(path.parent)
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        make_private(fd, path.name)
    finally:
        os.close(fd)


def _check_parent(parent: Path) -> None:
    found = os.stat(parent)
    if found.st_uid not in (os.geteuid(), 0) or (
        found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    ):
        check_folder(found, str(parent))
