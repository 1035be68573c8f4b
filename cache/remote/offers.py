"""What a remote offers: its refs, read and verified as those of a store are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from vcc.cache.digest import is_digest
from vcc.cache.errors import IntegrityError, MissingArtifact, RemoteError
from vcc.cache.manifest import NewerFormat
from vcc.cache.refs import MAX_REF, REFS, newest_first
from vcc.cache.remote.base import Remote
from vcc.cache.remote.patience import Patience
from vcc.cache.request import Entry, decode_ref

MAX_NAMES = 200_000
"""Names of a listing that are looked at."""
MAX_OFFERS = 2_000
"""Refs of one base that are read."""
THREADS = 8


@dataclass(frozen=True, slots=True)
class Offers:
    """The refs of a remote.

    Args:
        entries: the good ones, newest first.
        bad: what is wrong with others, a line each.
    """

    entries: tuple[Entry, ...]
    bad: tuple[str, ...]


def offers(remote: Remote, patience: Patience, base: str = "") -> Offers:
    """The artifacts of a remote.

    Args:
        base: digest of a base, hex; empty for all of them.

    Raises:
        RemoteError: it cannot be listed or read, or lists more than is looked at.
    """
    paths = patience.ask("listing the remote", lambda: _paths(remote, patience, base))
    if len(paths) > MAX_OFFERS:
        raise RemoteError(
            f"the remote {remote.url} offers {len(paths)} artifacts, more than are read at once",
            f"at most {MAX_OFFERS}",
            "Name artifacts by their whole ids, or remove old ones from the remote",
        )
    read = _all_read(remote, patience, paths)
    entries = [one for one in read if isinstance(one, Entry)]
    bad = tuple(one for one in read if isinstance(one, str) and one)
    return Offers(tuple(sorted(entries, key=newest_first)), bad)


def offered(remote: Remote, patience: Patience, artifact: str) -> tuple[Entry, ...]:
    """The entries of the artifact whose id begins so; the refs of others are not read.

    Raises:
        RemoteError: as `offers`.
    """
    paths = patience.ask("listing the remote", lambda: _paths(remote, patience, ""))
    found = [path for path in paths if path.rpartition("/")[2].startswith(artifact)]
    read = _all_read(remote, patience, found[:MAX_OFFERS])
    return tuple(one for one in read if isinstance(one, Entry))


def _paths(remote: Remote, patience: Patience, base: str) -> list[str]:
    prefix = f"v1/{REFS}/{base}/" if base else f"v1/{REFS}/"
    names = list(_bounded(remote.paths(prefix), patience))
    if len(names) > MAX_NAMES:
        raise RemoteError(f"the remote {remote.url} lists too much", f"over {MAX_NAMES} names")
    return sorted({name for name in names if _is_ref(name, prefix)})


def _bounded(names: Iterator[str], patience: Patience) -> Iterator[str]:
    for count, name in enumerate(islice(names, MAX_NAMES + 1)):
        if count % 1000 == 0:
            patience.check("listing the remote")
        yield name


def _is_ref(path: str, prefix: str) -> bool:
    """Whether a path is that of a ref; stores that fold case or add files list other ones too."""
    parts = path.split("/")
    named = len(parts) == 4 and is_digest(parts[2]) and is_digest(parts[3])
    return named and path.startswith(prefix)


def _all_read(remote: Remote, patience: Patience, paths: list[str]) -> list[Entry | str]:
    if len(paths) < 2:
        return [_read(remote, patience, path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor  # most bases have one ref

    with ThreadPoolExecutor(THREADS, "vcc-offers") as pool:
        waiting = [pool.submit(_read, remote, patience, path) for path in paths]
        try:
            return [one.result() for one in waiting]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _read(remote: Remote, patience: Patience, path: str) -> Entry | str:
    """The entry of a ref, or what is wrong with it; nothing for one that is not for us."""
    _, _, base, artifact = path.split("/")
    parts: list[bytes] = []

    def attempt() -> None:
        parts.clear()
        remote.get(path, parts.append, limit=MAX_REF)

    try:
        patience.ask(f"reading ref {artifact[:12]}", attempt)
        return decode_ref(b"".join(parts), base, artifact)
    except (MissingArtifact, NewerFormat):
        return ""
    except IntegrityError as error:
        return f"ref {artifact[:12]} of {remote.url} is bad: {error}"
