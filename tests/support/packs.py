"""Packs in memory, and what becomes of one that is imported."""

from __future__ import annotations

import io

from vcc.cache.gate import default_gate
from vcc.cache.pack.read import PackReader
from vcc.cache.pack.unpack import Unpacked, unpack
from vcc.cache.pack.write import content_of, write_pack
from vcc.cache.store import Store


def pack_of(store: Store) -> bytes:
    """The bytes of a pack of everything in a store."""
    out = io.BytesIO()
    write_pack(content_of(store, tuple(store.entries())), out.write)
    return out.getvalue()


def import_into(store: Store, data: bytes) -> tuple[Unpacked, ...]:
    """Import the bytes of a pack."""
    return unpack(store.root, PackReader.open(io.BytesIO(data)), default_gate())


def drain(data: bytes) -> PackReader:
    """Read all of a pack, as `vcc import --dry-run` does."""
    reader = PackReader.open(io.BytesIO(data))
    for _, parts in reader.blobs():
        for _ in parts:
            pass
    return reader
