"""Taking a guest's caches back: what is new is stored with what was there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vcc.cache.care.prune import keep_under
from vcc.cache.errors import StorageError, VccError
from vcc.cache.manifest import Manifest
from vcc.cache.request import Entry
from vcc.cache.settings import read_settings
from vcc.cache.store import Store
from vcc.engine.compile.versions import versions
from vcc.engine.guest.bundles import packed
from vcc.engine.guest.files import MAX_FILES, File, counted, files_of
from vcc.engine.guest.identity import SCRIPT, Identity
from vcc.engine.guest.restore import Restored

CRASHES = frozenset({128 + number for number in (4, 6, 7, 8, 9, 11)})
"""Exit codes of programs that crashed or were killed: what they left may be anything."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of the caches.

    Attributes:
        made: files that the guest made or changed, by path.
        entry: the artifact; None when nothing was stored.
        size: bytes of all files.
        left_out: how many were unfinished or name other places.
        why: why nothing was stored; empty when something was.
    """

    made: Mapping[str, File]
    entry: Entry | None = None
    size: int = 0
    left_out: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When caches are stored at all.

    Attributes:
        max_size: most bytes of all files.
        save: False: never.
    """

    max_size: int
    save: bool = True


def save(
    store: Store, identity: Identity, folder: Path, before: Restored, code: int, bounds: Bounds
) -> Saved:
    """Store the caches if the guest made anything new.

    Args:
        store: where to.
        identity: the request.
        folder: of the caches.
        before: what was put there.
        code: the guest's exit code.
        bounds: when not to.

    Raises:
        StorageError: it could not be stored and the store is strict.
    """
    found = {one.path: one for one in files_of(folder)}
    made = {path: one for path, one in found.items() if before.files.get(path) != one}
    size = sum(one.size for one in found.values())
    why = _why_not(found, made, size, code, bounds)
    if why:
        return Saved(made, size=size, why=why)
    blobs, left_out = packed(folder, found)
    try:
        created = _after_all(store, identity)
        entry = store.publish(_manifest(identity, before, found, made, created), blobs)
    except VccError as error:
        if store.strict and isinstance(error, StorageError):
            raise
        return Saved(made, size=size, left_out=len(left_out), why=str(error))
    kept = keep_under(store.root, read_settings().max_size, entry.artifact)
    return Saved(made, entry, size, len(left_out), kept)


def _why_not(
    found: Mapping[str, File], made: Mapping[str, File], size: int, code: int, bounds: Bounds
) -> str:
    if not made:
        return "nothing new was made"
    if not bounds.save:
        return "--no-save"
    if code in CRASHES:
        return f"the program ended by signal {code - 128}, so that its files may be unfinished"
    if size > bounds.max_size or len(found) > MAX_FILES:
        return (
            f"{len(found)} files of {size} bytes are more than {MAX_FILES} or {bounds.max_size}: "
            "--max-size allows more, --fresh forgets what is not used any more"
        )
    return ""


def _manifest(
    identity: Identity,
    before: Restored,
    found: Mapping[str, File],
    made: Mapping[str, File],
    created: int,
) -> Manifest:
    request = tuple(sorted(identity.fields.items()))
    past = 0 if before.entry is None else before.entry.build_ms
    return Manifest(
        request=request,
        open_fields=(SCRIPT,),
        code_key=request,
        host_rules={"loader": "Guest"},
        builder=versions(),
        title=f"caches of {identity.fields['guest.name']}",
        created=created,
        build_ms=past + _spent_ms(made),
        info={"files": counted(found)},
    )


def _after_all(store: Store, identity: Identity) -> int:
    """Now, and later than all that is there: two runs in one second must not tie."""
    there = replace(store, remote=None).find(identity.base)
    return max([int(time.time()), *(one.created + 1 for one in there)])


def _spent_ms(made: Mapping[str, File]) -> int:
    """From the first new file to the last: as much as can be known of the time that they took."""
    times = [one.changed for one in made.values()]
    return (max(times) - min(times)) // 10**6
