"""Importing a pack: all of it is verified in a folder of our own before anything is visible."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vcc.cache.blob import CAS, has_blob, place, read_blob
from vcc.cache.folder import FILE_MODE, NEW_FLAGS, Folder, write_all
from vcc.cache.gate import Gate
from vcc.cache.pack.read import Packed, PackReader
from vcc.cache.publish import (
    name_file,
    own_folder,
    publish_content,
    publish_ref,
    put_back,
    sync_down,
)
from vcc.cache.pulled import Mark, remove_mark, write_mark
from vcc.cache.refs import has_ref
from vcc.cache.remote.base import Blob
from vcc.cache.remote.signatures import put_signature
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.tiers import tiers_of
from vcc.cache.trouble import storage

FROM_PACK = "pack"


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An imported artifact.

    Args:
        entry: which.
        trust: why the gate admits it.
        new: whether the store had no ref of it before.
    """

    entry: Entry
    trust: str
    new: bool


def unpack(
    root: Path,
    reader: PackReader,
    gate: Gate,
    told: Callable[[str, str], None] = lambda item, state: None,
) -> tuple[Unpacked, ...]:
    """Bring all artifacts of a pack into the store at `root`, or none.

    Args:
        gate: asked for each artifact before a blob is written.
        told: hears of each blob by its digest: "done".

    Raises:
        PackError: the pack is damaged.
        Untrusted: the gate does not admit an artifact.
        StorageError, Unsafe: the store cannot be written.
    """
    trouble = storage("write to the store at", str(root))
    with trouble, opened(root, create=True) as store, own_folder(store) as own:
        new = {one.entry.artifact: not has_ref(store, one.entry) for one in reader.artifacts}
        try:
            trust = [_admitted(root, store, own, gate, one, new) for one in reader.artifacts]
            temps = {blob: _written(own, parts) for blob, parts in reader.blobs()}
        except BaseException:
            for artifact, fresh in new.items():
                if fresh:
                    remove_mark(store, artifact)
            raise
        for blob, temp in temps.items():
            _name(store, own, blob, temp)
            told(blob.digest.hex, "done")
        sync_down(store, CAS)
        for one in reader.artifacts:
            publish_content(store, own, {one.entry.id: one.text})
            publish_ref(store, own, one.entry)
            put_back(store, own, {one.entry.id: one.text})
        for blob, temp in temps.items():
            if not has_blob(store, blob.digest):  # a collection took it before it saw a ref
                _name(store, own, blob, temp)
    pairs = zip(reader.artifacts, trust, strict=True)
    return tuple(Unpacked(one.entry, why, new[one.entry.artifact]) for one, why in pairs)


def _admitted(
    root: Path, store: Folder, own: Folder, gate: Gate, one: Packed, new: dict[str, bool]
) -> str:
    for key, data in one.signatures.items():
        put_signature(store, own, one.entry.id, key, data)
    if new[one.entry.artifact]:
        now = max(0, int(time.time()))
        write_mark(store, own, one.entry.artifact, Mark(url=FROM_PACK, when=now, by_hand=True))
    return gate.admit(store, tiers_of(root, ())[0], one.entry, one.text, os.geteuid())


def _written(own: Folder, parts: Iterator[bytes]) -> str:
    """A synced file of our own with these bytes; its name."""
    name = os.urandom(8).hex()
    fd = os.open(name, NEW_FLAGS, FILE_MODE, dir_fd=own.fd)
    try:
        os.fchmod(fd, FILE_MODE)
        for part in parts:
            write_all(fd, part)
        os.fsync(fd)
    finally:
        os.close(fd)
    return name


def _name(store: Folder, own: Folder, blob: Blob, temp: str) -> None:
    *folders, name = place(blob.digest)
    with store.below(*folders, create=True) as shelf:
        check = partial(read_blob, store, blob.digest, blob.size)
        name_file(store, own, temp, shelf, name, check)
        shelf.sync()
