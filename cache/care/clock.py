"""The clock that ages in a store are measured by."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from vcc.cache.folder import Folder
from vcc.cache.publish import own_folder
from vcc.cache.trouble import Unsafe


def now_of(store: Folder) -> float:
    """Seconds since 1970 by the clock that stamps the store's files.

    That of this process may be another one (a file server's, or one that was set wrong), and an age
    is the difference of two readings of one clock. Its own where the store cannot be written.
    """
    with suppress(OSError, Unsafe), own_folder(store) as own:
        return os.fstat(own.fd).st_mtime
    return max(0.0, time.time())


def age(now: float, then: float) -> float:
    """Seconds from `then` to `now`; a time from the future is no time ago."""
    return max(0.0, now - then)
