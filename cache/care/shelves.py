"""Checking shelves: each index, and the blobs that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vcc.cache import canonical
from vcc.cache.blob import has_blob, place
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.care.content import Content
from vcc.cache.digest import Digest, is_digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.taken import is_in_hands

BLOBS: Mapping[object, tuple[str, ...]] = {1: ("tables", "cubins"), 2: ("bundle",)}
"""By the format of an index: the entries that name blobs of the store, see `docs/format.md`."""


def index_faults(
    store: Folder, index: tuple[str, ...], content: Content
) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """What is wrong with an index: (reason, place of what is wrong, place of a missing blob).

    Args:
        store: the open `v1` folder.
        index: path components of the index below `v1`.
        content: what the content store holds.
    """
    *folders, name = index
    try:
        with store.below(*folders) as shelf:
            data = shelf.read(name, limit=MAX_BYTES)
        if Digest.of(data).hex != name:
            raise IntegrityError("its digest does not match")
        value = canonical.decode(data, "index")
    except FileNotFoundError:
        return
    except (OSError, IntegrityError, WrongSize) as error:
        yield str(error), index, ()
        return
    for digest in sorted(_named(value)):
        if digest not in content.good and digest not in content.bad:
            lacks = place(Digest(digest))
            if not has_blob(store, Digest(digest)) and not is_in_hands(store, lacks):
                yield f"blob {digest[:12]} is not in the store", index, lacks
        elif digest in content.bad:
            yield f"blob {digest[:12]} is damaged", place(Digest(digest)), ()


def _named(index: object) -> set[str]:
    """The blobs of an index; what is of another form names none that this version knows."""
    if not isinstance(index, dict) or not isinstance(index.get("format"), int):
        return set()
    entries = BLOBS.get(index["format"], ())
    return {found for name in entries for found in _digests(index.get(name))}


def _digests(value: object) -> Iterator[str]:
    if not isinstance(value, list):
        return
    for item in value:
        if isinstance(item, str) and is_digest(item):
            yield item
        else:
            yield from _digests(item)
