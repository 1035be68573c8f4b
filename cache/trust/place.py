"""Trust folders: who is trusted is written down in small files, checked as the store's root is.

    <folder>/keys/<public key>.json      TrustedKey
    <folder>/remotes.json                Remotes: where pulls count as our own builds
    <folder>/revocations.json            Revocations
    <folder>/prod.json                   ProdRules

There are two: the user's (VCC_TRUST_DIR), and the administrator's, /etc/vcc/trust, which vcc only
reads. People and tools may write these files, so white space is free; all else is strict.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vcc.cache import canonical
from vcc.cache.canonical import FormatError
from vcc.cache.errors import StorageError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.owners import UNKNOWN, writer
from vcc.cache.root import opened_place
from vcc.cache.settings import user_trust_folder
from vcc.cache.trouble import Foreign, Unsafe, storage

SYSTEM = Path("/etc/vcc/trust")
MAX_TRUST_FILE = 1 << 16
_HINT = "Mend it or move it away; docs/security.md shows its form"
_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR})
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrustPlace:
    """The trust folders.

    Args:
        user: the one that vcc writes.
        system: the administrator's.
        named: the user's was asked for by name, so it must be one that can be used. The default
            one may lie in a home that is not this account's (in containers, under sudo): then
            this account has none.
    """

    user: Path
    system: Path
    named: bool

    @classmethod
    def open(cls, named: Path | None = None) -> TrustPlace:
        """The folders; nothing is made.

        Args:
            named: the user's, as VCC_TRUST_DIR says; None for the one in the config folder.
        """
        return cls(named or user_trust_folder(), SYSTEM, named is not None)

    def read(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """What stands in the files of this name, the user's first; none where there is none.

        Raises:
            FormatError: a file is not what it should be. Nothing is passed over: it might have
                been a revocation.
            StorageError, Unsafe: it cannot be read, or others could have written it.
        """
        found = []
        for folder in self._folders():
            with storage("read", f"{folder.path}/{name}"):
                data = _read(folder, name)
            if data is not None:
                found.append(parse(data, kind, f"{folder.path}/{name}"))
        return tuple(found)

    def read_own(self, name: str, kind: type[T]) -> T | None:
        """The user's file of this name alone; raises as `read`."""
        return next(iter(TrustPlace(self.user, self.user, True).read(name, kind)), None)

    def read_folder(self, name: str, kind: type[T]) -> tuple[tuple[str, T], ...]:
        """What stands in all `*.json` of both folders of this name, with the path of each file.

        Raises as `read`.
        """
        found: list[tuple[str, T]] = []
        for folder in self._folders():
            with storage("read", f"{folder.path}/{name}"):
                found += _all_of(folder, name, kind)
        return tuple(found)

    def write(self, name: str, value: object) -> Path:
        """Write a file of the user's folder, whole or not at all; `name` may lie in a folder.

        Returns:
            Its path.

        Raises:
            StorageError, Unsafe: it could not be written; the old one is as it was.
        """
        *folders, leaf = name.split("/")
        data = canonical.encode(msgspec.to_builtins(value), "trust file") + b"\n"
        temp = f".{os.urandom(8).hex()}"
        with storage("write", f"{self.user}/{name}"), _opened(self.user, create=True) as place:
            with place.below(*folders, create=True) as folder:
                folder.write(temp, data)
                os.rename(temp, leaf, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
                folder.sync()
            place.sync()
        return self.user / name

    def remove(self, name: str) -> bool:
        """Remove a file of the user's folder; returns whether there was one. Raises as `write`."""
        *folders, leaf = name.split("/")
        with storage("remove", f"{self.user}/{name}"):
            try:
                with _opened(self.user) as place, place.below(*folders) as folder:
                    os.unlink(leaf, dir_fd=folder.fd)
                    folder.sync()
            except FileNotFoundError:
                return False
        return True

    def _folders(self) -> Iterator[Folder]:
        """Those that are there, open; the caller is done with one before it asks for the next."""
        for path in dict.fromkeys((self.user, self.system)):
            with ExitStack() as stack:
                try:
                    with storage("read", str(path)):
                        folder = stack.enter_context(_opened(path))
                except (StorageError, Foreign) as error:
                    if not self._is_none(path, error):
                        raise
                    continue
                yield folder

    def _is_none(self, path: Path, error: StorageError | Foreign) -> bool:
        """Whether there is no such folder, or none of this account's."""
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError):
            return True
        elsewhere = isinstance(error, Foreign) or getattr(cause, "errno", 0) in _CLOSED
        if path != self.user or self.named or not elsewhere:
            return False
        _log.info("no trust folder of this account: %s", error)
        return True


@contextmanager
def _opened(path: Path, *, create: bool = False) -> Iterator[Folder]:
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(opened_place(path, create=create))
        except Unsafe as error:  # its advice is about the store's root
            error.hint = error.hint.replace("VCC_CACHE_DIR", "VCC_TRUST_DIR")
            raise
        _check_writer(os.fstat(folder.fd), str(path))
        yield folder


def _read(folder: Folder, name: str) -> bytes | None:
    try:
        found = folder.content(name, limit=MAX_TRUST_FILE)
    except FileNotFoundError:
        return None
    except WrongSize as error:
        raise FormatError(f"{folder.path}/{name} is too large", str(error)) from error
    if found.owner == UNKNOWN:
        raise _open_to_others(f"{folder.path}/{name}")
    return found.data


def _check_writer(found: os.stat_result, path: str) -> None:
    if writer(found) == UNKNOWN:
        raise _open_to_others(path)


def _open_to_others(path: str) -> Unsafe:
    return Unsafe(
        f"{path} is not safe to say who is trusted",
        "others than its owner can change it",
        f"chmod go-w {path}",
    )


def _all_of(place: Folder, name: str, kind: type[T]) -> list[tuple[str, T]]:
    try:
        with place.below(name) as folder:
            _check_writer(os.fstat(folder.fd), folder.path)
            names = [leaf for leaf in folder.names() if leaf.endswith(".json")]
            read = ((f"{folder.path}/{leaf}", _read(folder, leaf)) for leaf in names)
            return [(path, parse(data, kind, path)) for path, data in read if data is not None]
    except FileNotFoundError:
        return []


def parse(data: bytes, kind: type[T], what: str) -> T:
    """A value of `kind` from strict JSON: capped, no name twice, no unknown one.

    Raises:
        FormatError: with what is wrong, and where.
    """
    try:
        canonical.check_text(data, what)
        value = json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant)
        canonical.check_value(value, what)
        return msgspec.convert(value, kind, strict=True)
    except FormatError as error:
        raise FormatError(f"{what} cannot be used", f"{error.what}: {error.why}", _HINT) from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise FormatError(f"{what} cannot be used", str(error), _HINT) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
