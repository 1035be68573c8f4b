"""Putting a guest's caches in place: found, admitted, verified, written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vcc.cache.damage import Damage, says_nothing
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError, VccError
from vcc.cache.factors import ranked
from vcc.cache.gate import Untrusted
from vcc.cache.loaded import Loaded
from vcc.cache.request import Entry
from vcc.cache.store import Store
from vcc.cache.use import note_boot, note_missed
from vcc.engine.guest.bundles import PREFIX, unpacked
from vcc.engine.guest.files import MAX_FILES, RESTORED, TOPS, File, make_unread
from vcc.engine.guest.identity import KIND, SCRIPT, Identity


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place.

    Attributes:
        entry: the artifact; None when there was none that could be used.
        tier, trust: where it lay and why it was admitted.
        verified: bytes whose digest was compared.
        files: by path, as they were written.
        why: why there is none; empty when there is.
        misses: artifacts that were passed over: id, and the reason.
    """

    entry: Entry | None = None
    tier: str = ""
    trust: str = ""
    verified: int = 0
    files: dict[str, File] = field(default_factory=dict)
    why: str = ""
    misses: tuple[tuple[str, str], ...] = ()


def pickle_gate(store: Store) -> Store:
    """The store as it may be used for what another program unpickles.

    Every byte is compared by SHA-256, and what was pulled needs a signature.
    """
    return replace(store, gate=store.gate.for_pickles())


def restore(
    store: Store, identity: Identity, folder: Path, told: Callable[[str], None]
) -> Restored:
    """Fill the folder of the caches from the newest artifact that may be used.

    Args:
        store: with the gate for pickles.
        identity: what is looked for; artifacts of the same script come first.
        folder: has the empty folders of the caches.
        told: hears why an artifact is passed over.

    Raises:
        StorageError: the store cannot be read and is strict.
        Untrusted: artifacts answer, none is admitted, and the policy fails closed.
    """
    misses: list[tuple[str, str]] = []
    refused: Untrusted | None = None
    store = _telling(store, told)
    for entry in _found(store, identity, told):
        try:
            loaded = store.load(entry, full=True)
            files = _written(loaded, folder)
        except (MissingArtifact, IntegrityError, StorageError) as error:
            if store.strict and isinstance(error, StorageError):
                raise
            refused = error if isinstance(error, Untrusted) else refused
            store.quarantine(entry, error)  # which tells of damage
            _emptied(folder)
            misses.append((entry.artifact, str(error)))
            if says_nothing(error):
                told(f"artifact {entry.id.short} is not used: {error}")
            continue
        note_boot(store.root, entry.artifact)
        size = loaded.verified.bytes
        return Restored(entry, loaded.tier, loaded.trust, size, files, "", tuple(misses))
    if refused is not None and store.gate.fails_closed:
        raise refused
    note_missed(store.root, identity.base.digest.hex)
    why = misses[0][1] if misses else _why(store, identity)
    return Restored(why=why, misses=tuple(misses))


def _telling(store: Store, told: Callable[[str], None]) -> Store:
    """The same store, whose trouble is told as everything else is."""
    return replace(
        store,
        remote=None if store.remote is None else store.remote.telling(told),
        on_damage=lambda damage: told(_line(damage)),
        on_trouble=lambda error: told(str(error)),
    )


def _line(damage: Damage) -> str:
    done = "was set aside" if damage.removed else "is not used"
    return f"artifact {damage.artifact[:12]} is damaged and {done}: {damage.reason}"


def _found(store: Store, identity: Identity, told: Callable[[str], None]) -> Sequence[Entry]:
    try:
        entries = store.find(identity.base)
    except VccError as error:
        if store.strict:
            raise
        told(f"the store cannot be searched: {error}")
        return ()
    return sorted(entries, key=lambda one: one.fields.get(SCRIPT) != identity.script)


def _why(store: Store, identity: Identity) -> str:
    """Why nothing answers: the nearest caches, and what differs."""
    stated, failure = dict(identity.base), store.remote_failure(identity.base)
    if failure is not None:
        return str(failure)
    try:
        entries = tuple(replace(store, remote=None).entries())
    except VccError as error:
        return str(error)
    guests = [entry for entry in entries if entry.fields.get(KIND) == stated[KIND]]
    if not guests:
        return "no caches of any program are stored here"
    near = min((ranked(one.differences(stated)) for one in guests), key=len)
    more = f" and {len(near) - 4} more" if len(near) > 4 else ""
    return f"the nearest caches differ: {'; '.join(map(str, near[:4]))}{more}"


def _written(loaded: Loaded, folder: Path) -> dict[str, File]:
    """Write the files of all blobs, one blob in memory at a time."""
    files: dict[str, File] = {}
    for name in sorted(loaded.manifest.blobs):
        if not name.startswith(PREFIX):
            raise IntegrityError(f"the artifact has a blob {name[:80]}", "it is of no guest")
        for path, data in unpacked(name, loaded.read(name), folder):
            if len(files) >= MAX_FILES:
                raise IntegrityError("the artifact has too many files", f"over {MAX_FILES}")
            _write(folder / path, data)
            make_unread(folder / path)
            files[path] = File(path, len(data), RESTORED)
    return files


def _write(file: Path, data: bytes) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as stream:
            stream.write(data)
    except OSError as error:
        raise StorageError(
            f"cannot write {file}",
            str(error.strerror),
            "TMPDIR names a place with more room; --fresh starts without what is stored",
        ) from error


def _emptied(folder: Path) -> None:
    for top in TOPS:
        shutil.rmtree(folder / top, ignore_errors=True)
        (folder / top).mkdir(mode=0o700, exist_ok=True)
