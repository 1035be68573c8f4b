"""Notes: heuristic data beside the artifacts. A note may be lost, wrong or from a later version at
any time without effect; nothing that decides a load reads one.

    notes/last-lookup     the latest look-up that missed, for `vcc explain`
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcc.cache import canonical
from vcc.cache.errors import IntegrityError, VccError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.key import Key, Pairs
from vcc.cache.root import opened

NOTES, LAST_LOOKUP = "notes", "last-lookup"
MAX_NOTE = 1 << 18


@dataclass(frozen=True, slots=True)
class LastLookup:
    """A look-up that missed.

    Args:
        model: as the user named it.
        base: the part of the request that is always stated.
        stated: the open fields that were stated, sorted pairs.
        identity: what `model.digest` is made of, sorted pairs.
        why: the reason that was given.
        when: seconds since 1970.
    """

    model: str
    base: Key
    stated: Pairs
    identity: Pairs
    why: str
    when: int

    @property
    def wanted(self) -> Mapping[str, str]:
        """The stated open fields as a mapping."""
        return dict(self.stated)


def note_lookup(root: Path, looked: LastLookup) -> bool:
    """Write down a look-up that missed, over the one before. Makes no store where there is none.

    Returns:
        Whether it was written. Never raises for the store's sake.
    """
    value = {
        "model": looked.model,
        "base": list(looked.base.entries),
        "stated": list(looked.stated),
        "identity": list(looked.identity),
        "why": looked.why,
        "when": looked.when,
    }
    try:
        data = canonical.encode(value, "note")
        if len(data) > MAX_NOTE:
            return False
        with opened(root, create=False) as store:
            write_note(store, LAST_LOOKUP, data)
    except (OSError, VccError):
        return False
    return True


def last_lookup(root: Path) -> LastLookup | None:
    """The latest look-up that missed; None where none is known or the note cannot be read."""
    try:
        with opened(root, create=False) as store, store.below(NOTES) as notes:
            value = canonical.decode(notes.read(LAST_LOOKUP, limit=MAX_NOTE), "note")
        return _read(value)
    except (OSError, WrongSize, VccError, IntegrityError, KeyError, TypeError, ValueError):
        return None


def write_note(store: Folder, name: str, data: bytes) -> None:
    """Put a note in place of the one before; raises OSError and VccError as they come.

    Args:
        store: the open `v1` folder.
        name: one path component below `notes/`.
        data: its bytes.
    """
    from vcc.cache.publish import own_folder  # a hit has no use for it

    with own_folder(store) as own, store.below(NOTES, create=True) as notes:
        own.write("note", data)
        os.rename("note", name, src_dir_fd=own.fd, dst_dir_fd=notes.fd)


def now() -> int:
    """Seconds since 1970, for `when`."""
    return max(0, int(time.time()))


def _read(value: object) -> LastLookup:
    if not isinstance(value, dict):
        raise TypeError(value)
    return LastLookup(
        model=_text(value["model"]),
        base=Key(_pairs(value["base"])),
        stated=Key(_pairs(value["stated"])).entries,
        identity=Key(_pairs(value["identity"])).entries,
        why=_text(value["why"]),
        when=int(value["when"]),
    )


def _pairs(value: object) -> Pairs:
    if not isinstance(value, list):
        raise TypeError(value)
    return tuple((_text(label), _text(text)) for label, text in value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
