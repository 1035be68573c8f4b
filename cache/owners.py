"""Whose files the store accepts: this account's, root's, and those of VCC_TRUSTED_UIDS.

In a user namespace the files of every account that has no id there show the same overflow id. It
says nothing about who wrote them, so it is never an accepted owner there, whatever our own id is.
"""

from __future__ import annotations

import os
import stat

from vcc.cache.settings import trusted_uids

UNKNOWN = -1
"""The writer of a file that more than one account could have written."""

_OVERFLOW = 65534
_WHOLE_MAP = ["0", "0", "4294967295"]


def is_known(uid: int) -> bool:
    """Whether an id names one account; the overflow id of a user namespace names none."""
    return uid != _OVERFLOW or _initial_namespace()


def is_own(uid: int) -> bool:
    """Whether an id is this account's."""
    return uid == os.geteuid() and is_known(uid)


def is_accepted(uid: int) -> bool:
    """Whether files of this id are as good as our own: ours, root's, or of a listed account."""
    return (uid in (os.geteuid(), 0) or uid in trusted_uids()) and is_known(uid)


def writer(found: os.stat_result) -> int:
    """The one account that can have written a file; `UNKNOWN` where others could have too."""
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return UNKNOWN if shared or not is_known(found.st_uid) else found.st_uid


def _initial_namespace() -> bool:
    try:
        with open("/proc/self/uid_map") as lines:
            return lines.read().split() == _WHOLE_MAP
    except OSError:
        return True  # a kernel without user namespaces
