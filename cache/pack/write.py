"""Writing a pack: the same artifacts give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vcc.cache.digest import Digest
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import BlobRef
from vcc.cache.pack.form import Index, encode_head
from vcc.cache.request import Entry, encode_ref
from vcc.cache.store import Store
from vcc.cache.stored import manifest_text, signatures_of


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a pack, its blobs not read yet.

    Args:
        index: what it holds.
        files: the bytes of refs, signatures and manifests, in the order of the index.
        blobs: of each blob, in the same order, the artifact that gives it and its reference.
    """

    index: Index
    files: tuple[bytes, ...]
    blobs: tuple[tuple[Loaded, BlobRef], ...]


def content_of(store: Store, entries: Sequence[Entry]) -> Content:
    """Load the manifests of artifacts for a pack.

    Raises:
        MissingArtifact, Damaged, Untrusted, StorageError: an artifact cannot be loaded.
        FormatError: there are too many.
    """
    refs, signatures, manifests = {}, {}, {}
    blobs: dict[str, tuple[Loaded, BlobRef]] = {}
    for entry in entries:
        loaded = store.load(entry, full=True)
        refs[entry.base.digest.hex, entry.artifact] = encode_ref(entry)
        manifests[entry.artifact] = manifest_text(loaded, entry)
        for key, data in signatures_of(store, entry.artifact).items():
            signatures[entry.artifact, key] = data
        blobs |= {ref.sha256: (loaded, ref) for ref in loaded.manifest.blobs.values()}
    index = Index(
        refs=tuple((*names, *_sized(data)) for names, data in sorted(refs.items())),
        signatures=tuple((*names, *_sized(data)) for names, data in sorted(signatures.items())),
        manifests=tuple((name, len(data)) for name, data in sorted(manifests.items())),
        blobs=tuple((name, ref.size) for name, (_, ref) in sorted(blobs.items())),
    )
    small = [data for group in (refs, signatures, manifests) for _, data in sorted(group.items())]
    return Content(index, tuple(small), tuple(pair for _, pair in sorted(blobs.items())))


def write_pack(
    content: Content,
    write: Callable[[bytes], object],
    told: Callable[[str, str], None] = lambda item, state: None,
) -> int:
    """Write a pack; its bytes.

    Args:
        write: takes all of the bytes that it is given.
        told: hears of each blob by its digest: "done".

    Raises:
        Damaged, MissingArtifact, StorageError: a blob cannot be read.
        FormatError: the index is too large.
    """
    head = encode_head(content.index)
    write(head)
    for data in content.files:
        write(data)
    for loaded, ref in content.blobs:
        write(loaded.fetch(ref))
        told(ref.sha256, "done")
    return len(head) + content.index.size


def _sized(data: bytes) -> tuple[str, int]:
    return Digest.of(data).hex, len(data)
