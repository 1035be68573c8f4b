"""Quarantine: a bad file leaves the store once, is kept for inspection, and is a miss from then on.

quarantine/<name>.<random>        the file as it was found
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from vcc.cache.folder import Folder
from vcc.cache.trouble import Unsafe

QUARANTINE = "quarantine"
_log = logging.getLogger(__name__)


def set_aside(store: Folder, folder: Folder, name: str) -> bool:
    """Move `name` out of `folder` into quarantine; where that cannot be, remove it.

    Args:
        store: the open `v1` folder.
        folder: where the bad file lies.
        name: its name there.

    Returns:
        Whether the name is free now. False on a store that cannot be written: never an error,
        because a bad entry must not stop a run.
    """
    try:
        with store.below(QUARANTINE, create=True) as kept:
            target = f"{name}.{os.urandom(8).hex()}"
            os.rename(name, target, src_dir_fd=folder.fd, dst_dir_fd=kept.fd)
            return True
    except FileNotFoundError:
        return True  # another process was faster
    except (OSError, Unsafe) as error:
        _log.info("%s/%s could not be quarantined: %s", folder.path, name, error)
    with suppress(OSError):
        os.unlink(name, dir_fd=folder.fd)
    return not exists(folder, name)


def exists(folder: Folder, name: str) -> bool:
    """Whether a folder has this name, whatever it leads to."""
    try:
        os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except OSError:
        return False
    return True
