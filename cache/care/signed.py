"""Checking what lies beside artifacts: signatures, and marks of where they came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from vcc.cache.care.marks import names
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, VccError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.pulled import PULLED, read_mark
from vcc.cache.taken import SIGNATURES


@dataclass(slots=True)
class Beside:
    """How many files there are, and (place, reason) of each bad one."""

    count: int = 0
    bad: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


def bad_signatures(store: Folder, notes: list[str]) -> Beside:
    """Signature files that are none by their key over their artifact, whoever is trusted.

    Args:
        store: the open `v1` folder.
        notes: is told when signatures cannot be checked here.
    """
    found = Beside()
    for artifact in names(store, SIGNATURES):
        for key, data in _files(store, artifact, found):
            found.count += 1
            try:
                _verify(data, artifact, key)
            except IntegrityError as error:
                found.bad.append(((SIGNATURES, artifact, key), str(error)))
            except VccError as error:  # cryptography is not installed
                notes.append(f"signatures were not checked: {error}")
                return found
    return found


def bad_marks(store: Folder) -> Beside:
    """Marks that cannot be read: of such an artifact nothing is known of where it came from."""
    found = Beside()
    for artifact in names(store, PULLED):
        found.count += 1
        try:
            read_mark(store, artifact)
        except (IntegrityError, OSError) as error:
            found.bad.append(((PULLED, artifact), str(error)))
    return found


def _files(store: Folder, artifact: str, found: Beside) -> list[tuple[str, bytes]]:
    from vcc.cache.trust.statement import MAX_STATEMENT

    files: list[tuple[str, bytes]] = []
    with _opened(store, artifact, found) as folder:
        if folder is None:
            return files
        for name in folder.names():
            try:
                files.append((name, folder.read(name, limit=MAX_STATEMENT)))
            except FileNotFoundError:
                continue
            except (OSError, IntegrityError, WrongSize) as error:
                found.bad.append(((SIGNATURES, artifact, name), str(error)))
    return files


@contextmanager
def _opened(store: Folder, artifact: str, found: Beside) -> Iterator[Folder | None]:
    """The signatures of an artifact; None where they were removed under us, or are no folder."""
    with ExitStack() as stack:
        folder = None
        try:
            folder = stack.enter_context(store.below(SIGNATURES, artifact))
        except FileNotFoundError:
            pass
        except (OSError, IntegrityError) as error:
            found.bad.append(((SIGNATURES, artifact), str(error)))
        yield folder


def _verify(data: bytes, artifact: str, key: str) -> None:
    from vcc.cache.trust.signature import verify

    verify(data, Digest(artifact), key)
