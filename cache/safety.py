"""Which folders and files are safe to use, judged by the status of an open descriptor."""

from __future__ import annotations

import os
import stat

from vcc.cache.owners import is_accepted, is_known, is_own, writer
from vcc.cache.trouble import Foreign, Unsafe, user_name


def is_private(found: os.stat_result) -> bool:
    """Whether this account owns it and no other may write to it."""
    return is_own(writer(found))


def check_folder(found: os.stat_result, path: str, shared: bool = False) -> None:
    """Refuse a folder that everyone may change or that, unless it is shared, is not ours.

    Raises:
        Unsafe, Foreign: it is refused.
    """
    if not shared:
        _check_owner(found, path)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise Unsafe(
            f"{path} is not safe to use",
            f"every account can change it (mode {found.st_mode & 0o7777:04o})",
            f"chmod o-w {path}, or set VCC_CACHE_DIR to a folder of your own",
        )


def check_file(found: os.stat_result, path: str, any_owner: bool) -> None:
    """Refuse what is no regular file, is not of an accepted owner, or can be changed by everyone.

    Args:
        found: of the open descriptor.
        path: for messages.
        any_owner: in a shared store, where the owner says nothing.

    Raises:
        Unsafe, Foreign: it is refused.
    """
    if not stat.S_ISREG(found.st_mode):
        raise Unsafe(f"{path} is not a regular file", hint="Remove it")
    if not any_owner:
        _check_owner(found, path)
    if found.st_mode & stat.S_IWOTH:
        raise Unsafe(f"{path} can be changed by every account", hint=f"Remove {path}")


def _check_owner(found: os.stat_result, path: str) -> None:
    if is_accepted(found.st_uid):
        return
    if not is_known(found.st_uid):
        raise Foreign(
            f"{path} is not safe to use",
            f"its owner has no id in this user namespace and shows as uid {found.st_uid}",
            "Map its owner into the namespace (podman: --userns=keep-id), or set VCC_CACHE_DIR "
            "to a folder of your own",
        )
    raise Foreign(
        f"{path} is not safe to use",
        f"it belongs to {user_name(found.st_uid)}, you are {user_name(os.geteuid())}",
        f"chown it to your account if you trust its content (sudo chown -R {os.geteuid()} "
        f"{path}), list its owner if you trust that account (VCC_TRUSTED_UIDS={found.st_uid}), "
        "or set VCC_CACHE_DIR to a folder of your own",
    )
