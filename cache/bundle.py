"""Bundles: blobs of many parts with digests of their own, so that a reader takes what it needs.

A bundle lies in `cas/` under the SHA-256 of all of its bytes. What is read of it is verified part
by part: the index that names the bundle has the digests of its parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vcc.cache.blob import MAX_BLOB, Damaged, explained, place
from vcc.cache.digest import Digest, xxh3
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.safety import is_private


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a bundle: SHA-256 and XXH3-128 in hex, where they start, and how many they are."""

    sha256: str
    xxh3: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open bundle.

    Args:
        digest: of the whole.
        fd: its descriptor.
        private: no other account could have written it, so XXH3-128 stands for SHA-256.
    """

    digest: Digest
    fd: int
    private: bool

    def read(self, part: Part, into: memoryview) -> None:
        """Fill `into`, of the part's size, with its verified bytes.

        Raises:
            Damaged: the bytes are others, cut short, or the disk cannot read them.
            StorageError: the system refuses.
        """
        with explained(self.digest, f"blob {self.digest.hex}"):
            _fill(self.fd, part.offset, into)
        right = xxh3(into) == part.xxh3 if self.private else _sha256(into) == part.sha256
        if not right:
            why = f"a part at byte {part.offset} has another digest"
            raise Damaged(f"blob {self.digest.short} is damaged", why, "", self.digest)


@contextmanager
def opened_bundle(store: Folder, digest: Digest, size: int) -> Iterator[Bundle]:
    """A bundle of the store, open as long as the context lasts.

    Args:
        store: the open `v1` folder.
        digest: SHA-256 that it is named by.
        size: bytes that its index promises.

    Raises:
        MissingArtifact, Damaged, StorageError: as `blob.read_content`.
    """
    *folders, name = place(digest)
    with (
        explained(digest, f"{store.path}/{'/'.join(place(digest))}"),
        store.below(*folders) as folder,
        folder.opened(name, size=size, limit=MAX_BLOB) as (file, found),
    ):
        fd, private = os.dup(file), folder.private and is_private(found)
    try:
        yield Bundle(digest, fd, private)
    finally:
        os.close(fd)


def _sha256(data: memoryview) -> str:
    return Digest.of(data).hex


def _fill(fd: int, offset: int, into: memoryview) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(fd, [into[done:]], offset + done)
        if not count:
            raise WrongSize(done, len(into))
        done += count
