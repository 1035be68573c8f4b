"""Reading the refs of a store: bad ones are told apart from those that are just not for us."""

from __future__ import annotations

import errno
from collections.abc import Container
from dataclasses import dataclass

from vcc.cache.blob import Damaged
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import is_digest
from vcc.cache.errors import IntegrityError, MissingArtifact
from vcc.cache.folder import BAD_FILE, Folder, WrongSize
from vcc.cache.key import Key
from vcc.cache.manifest import NewerFormat
from vcc.cache.request import Entry, decode_ref
from vcc.cache.trouble import Foreign, storage_error

REFS = "refs"
MAX_REF = MAX_BYTES + 66


class KeyMismatch(Damaged):
    """A manifest lies under a ref that says something else about it."""

    id = "KEY_MISMATCH"


@dataclass(frozen=True, slots=True)
class Refs:
    """What lies in a folder of refs.

    Args:
        entries: the good ones, newest first.
        bad: (name, reason) of damaged or unsafe files.
    """

    entries: tuple[Entry, ...]
    bad: tuple[tuple[str, str], ...]


def read_refs(store: Folder, base: str, skip: Container[str] = ()) -> Refs:
    """The refs of one base.

    Args:
        store: the open `v1` folder.
        base: digest of the base, hex.
        skip: artifact ids that are known to be bad.

    Raises:
        StorageError: the system refuses to list or read them.
    """
    entries: list[Entry] = []
    bad: list[tuple[str, str]] = []
    try:
        with store.below(REFS, base) as folder:
            for name in folder.names():
                if is_digest(name) and name not in skip:  # NFS leaves .nfs files at times
                    _sort_in(folder, base, name, entries, bad)
    except FileNotFoundError:
        pass  # no artifact of this base yet
    except NotADirectoryError:
        with store.below(REFS):
            pass  # the base alone is a file, which a check names; refused where it is all refs
    return Refs(tuple(sorted(entries, key=newest_first)), tuple(bad))


def bases(store: Folder) -> tuple[str, ...]:
    """The digests of all bases that have refs, hex."""
    try:
        with store.below(REFS) as folder:
            return tuple(name for name in folder.names() if is_digest(name))
    except FileNotFoundError:
        return ()


def has_ref(store: Folder, entry: Entry) -> bool:
    """Whether the store has a good ref of this artifact."""
    base, artifact = entry.base.digest.hex, entry.artifact
    try:
        with store.below(REFS, base) as refs:
            decode_ref(refs.read(artifact, limit=MAX_REF), base, artifact)
    except (OSError, IntegrityError, MissingArtifact, WrongSize):
        return False
    return True


def newest_first(entry: Entry) -> tuple[int, str]:
    """Sort key: later artifacts first, equal times by id so that the order is stable."""
    return (-entry.created, entry.artifact)


def check_same(entry: Entry, found: Entry) -> None:
    """Refuse a manifest that is not the one its ref describes.

    Raises:
        KeyMismatch: names the fields.
    """
    if entry == found:
        return
    fields = Key(entry.request).diff(Key(found.request))
    why = "; ".join(str(difference) for difference in fields[:5])
    raise KeyMismatch(
        f"artifact {entry.id.short} is not what its ref says",
        why or "size, time, title or host rules differ",
    )


def _sort_in(
    folder: Folder, base: str, name: str, entries: list[Entry], bad: list[tuple[str, str]]
) -> None:
    try:
        entries.append(decode_ref(folder.read(name, limit=MAX_REF), base, name))
    except (NewerFormat, Foreign):
        pass  # not for us, and not ours to touch: a miss
    except (IntegrityError, WrongSize) as error:
        bad.append((name, str(error)))
    except OSError as error:
        if error.errno in BAD_FILE:
            bad.append((name, str(error)))
        elif error.errno not in (errno.ENOENT, errno.ESTALE):  # gone under us: a miss
            raise storage_error("read", f"{folder.path}/{name}", error) from error
