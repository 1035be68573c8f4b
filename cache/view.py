"""Large blobs as views of memory in huge pages: half the time of reading them into `bytes`.

Most of that time goes into giving memory to the process, 4 KiB at a time; huge pages have 2 MiB.
The view keeps its memory alive and cannot be written through.
"""

from __future__ import annotations

import os
from contextlib import suppress

from vcc.cache.blob import compare, explained, place, read_content, retried
from vcc.cache.digest import Digest
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.safety import is_private

LARGE = 2 << 20


def read_view(store: Folder, digest: Digest, size: int, *, fast: str = "") -> memoryview:
    """The verified bytes of a blob; arguments and errors as `blob.read_content`."""
    if size < LARGE:
        return memoryview(read_content(store, digest, size, fast=fast).data)
    with explained(digest, f"{store.path}/{'/'.join(place(digest))}"):
        view, private = retried(lambda: _read(store, digest, size))
    compare(view, digest, fast if private else "")
    return view


def _read(store: Folder, digest: Digest, size: int) -> tuple[memoryview, bool]:
    *folders, name = place(digest)
    with (
        store.below(*folders) as shelf,
        shelf.opened(name, size=size, limit=size) as (fd, found),
    ):
        return _filled(fd, size), shelf.private and is_private(found)


def _filled(fd: int, size: int) -> memoryview:
    import mmap  # a look-up does not pay for the import

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without huge pages gives small ones
        memory.madvise(mmap.MADV_HUGEPAGE)
    view, done = memoryview(memory), 0
    while done < size:
        count = os.readv(fd, [view[done:]])
        if not count:
            raise WrongSize(done, size)
        done += count
    return view.toreadonly()
