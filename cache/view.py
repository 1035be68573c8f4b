"""Blobs as views of memory in huge pages: half the time of reading them into `bytes`, or less.

Most of that time goes into giving memory to the process, 4 KiB at a time; huge pages have 2 MiB.
One room serves all blobs that are read together. It lives as long as any view of it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from vcc.cache.blob import compare, explained, place, retried
from vcc.cache.digest import Digest
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.safety import is_private

LARGE = 2 << 20


def room(size: int) -> memoryview:
    """Fresh memory, in huge pages where there is enough of it."""
    if size < LARGE:
        return memoryview(bytearray(size))
    import mmap  # a look-up does not pay for the import

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without huge pages gives small ones
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def read_into(view: memoryview, store: Folder, digest: Digest, fast: str = "") -> memoryview:
    """The verified bytes of a blob, read into `view` of its size; cannot be written through.

    Arguments and errors as `blob.read_content`.
    """
    with explained(digest, f"{store.path}/{'/'.join(place(digest))}"):
        private = retried(lambda: _read(view, store, digest))
    compare(view, digest, fast if private else "")
    return view.toreadonly()


def _read(view: memoryview, store: Folder, digest: Digest) -> bool:
    *folders, name = place(digest)
    size = len(view)
    with (
        store.below(*folders) as shelf,
        shelf.opened(name, size=size, limit=size) as (fd, found),
    ):
        done = 0
        while done < size:
            count = os.readv(fd, [view[done:]])
            if not count:
                raise WrongSize(done, size)
            done += count
        return shelf.private and is_private(found)
