"""Stored artifacts as they are, for those who carry them on: manifest text and signatures."""

from __future__ import annotations

from vcc.cache.blob import Damaged
from vcc.cache.digest import Digest
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cache.tiers import reading
from vcc.cache.trust.signature import MAX_SIGNATURES, signature_files


def manifest_text(loaded: Loaded, entry: Entry) -> bytes:
    """The bytes whose digest is the artifact's id.

    Raises:
        Damaged: the manifest does not encode to what it was read from.
    """
    text = loaded.manifest.encode()
    if Digest.of(text) != entry.id:
        raise Damaged(f"manifest {entry.id.short} cannot be written as it was", "", "", entry.id)
    return text


def signatures_of(store: Store, artifact: str) -> dict[str, bytes]:
    """The signatures of an artifact in all tiers, by key: the first tier's comes first; at most 16.

    Raises:
        StorageError, Unsafe: a tier cannot be read.
    """
    found: dict[str, bytes] = {}
    for tier in store.tiers:
        with reading(tier) as folder:
            if folder is not None:
                found = {**signature_files(folder, artifact), **found}
    return dict(sorted(found.items())[:MAX_SIGNATURES])
