"""Opening the root of a store: refused where another account could have prepared it.

A root that its group may write is taken for shared: what lies in it is then loaded by signature
unless the policy says otherwise (`trust/policy.py`).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcc.cache.folder import FOLDER_FLAGS, Folder, make_private
from vcc.cache.owners import is_accepted
from vcc.cache.safety import check_folder, is_private
from vcc.cache.trouble import Unsafe, user_name

LAYOUT = "v1"
_log = logging.getLogger(__name__)


@contextmanager
def opened(root: Path, *, create: bool) -> Iterator[Folder]:
    """The folder `<root>/v1`.

    Args:
        root: absolute path; a symlink is accepted only when you or root made it.
        create: make what is missing, mode 0700.

    Raises:
        OSError: not there and not to be made, or not accessible.
        Unsafe: root, its parent or `v1` is owned by an account that is neither yours nor root's
            nor listed, or writable by everyone.
    """
    with opened_place(root, create=create) as place, place.below(LAYOUT, create=create) as folder:
        yield folder


@contextmanager
def opened_place(place: Path, *, create: bool) -> Iterator[Folder]:
    """A folder that the user named, checked as the root of a store is; see `opened`."""
    path = _resolved(place)
    if create:
        _make(path)
    check_parent(path.parent)
    fd = os.open(path, FOLDER_FLAGS)
    try:
        found = os.fstat(fd)
        check_folder(found, str(path))
        if create:
            _say_whose(found.st_uid, path)
        shared = bool(found.st_mode & stat.S_IWGRP)
        yield Folder(fd, str(path), is_private(found), shared)
    finally:
        os.close(fd)


def _resolved(root: Path) -> Path:
    """The root with symlinks resolved, once the link itself is known to be ours."""
    try:
        found = os.lstat(root)
    except FileNotFoundError:
        return Path(os.path.realpath(root))
    if stat.S_ISLNK(found.st_mode) and not is_accepted(found.st_uid):
        raise Unsafe(
            f"{root} is not safe to use",
            f"it is a symlink made by {user_name(found.st_uid)}",
            f"Remove it, or set VCC_CACHE_DIR to a folder of your own (you are uid {os.geteuid()})",
        )
    return Path(os.path.realpath(root))


def _make(path: Path) -> None:
    """Make what is missing; nothing is left in a folder that the store is then refused in."""
    if path.exists():
        return
    parent = path.parent
    if parent.exists():
        check_parent(parent)
    else:
        _make_above(parent)
    _make_one(path)


def _make_above(path: Path) -> None:
    if not path.parent.exists():
        _make_above(path.parent)
    _say_whose(os.stat(path.parent).st_uid, path.parent)
    _make_one(path)


def _make_one(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        make_private(fd, path.name)
    finally:
        os.close(fd)


def _say_whose(owner: int, path: Path) -> None:
    """Root leaves files of root in a folder of another account: never without a word."""
    if os.geteuid() == 0 and owner != 0:
        _log.warning(
            "%s belongs to %s and vcc runs as root: what it writes there will belong to root",
            *(path, user_name(owner)),
        )


def check_parent(parent: Path) -> None:
    """Refuse a parent in which another account can put something else in place of the folder."""
    found = os.stat(parent)
    if not is_accepted(found.st_uid) or (
        found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    ):
        check_folder(found, str(parent))
