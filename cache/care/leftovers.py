"""Leftovers: folders that killed processes of this account left where temporary files go.

    name = prefix process "." rest          ; process as in `process.py`

They lie outside of any store. A folder stays while its process runs, when that cannot be known from
here, and when it is another account's. A link is neither followed nor removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vcc.cache.care.garbage import Garbage
from vcc.cache.care.sweep import Swept
from vcc.cache.process import Life, Process

PREFIXES = ("vcc-build-", "vcc-load-")
"""Of builds, and of libraries that are being loaded."""


def leftovers() -> Iterator[Path]:
    """The folders that may go; none where the temporary folder cannot be listed."""
    try:
        with os.scandir(tempfile.gettempdir()) as found:
            yield from [Path(one.path) for one in found if _is_left(one)]
    except OSError:
        return


def sweep_leftovers(done: Swept, *, dry_run: bool = False) -> None:
    """Remove leftovers, and say so in `done`; what cannot be removed is said too."""
    for folder in leftovers():
        one = Garbage("temporary folders", (str(folder),), _size(folder), "its process is gone")
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)  # refuses links, also at the last moment
            if folder.exists():
                done.failed.append((one, "it cannot be emptied"))
                continue
        done.gone.append(one)


def _is_left(entry: os.DirEntry[str]) -> bool:
    prefix = next((one for one in PREFIXES if entry.name.startswith(one)), None)
    if prefix is None or not entry.is_dir(follow_symlinks=False):
        return False
    owner = Process.parse(entry.name.removeprefix(prefix))
    own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return own and owner is not None and owner.life() is Life.GONE


def _size(folder: Path) -> int:
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue
    return total
