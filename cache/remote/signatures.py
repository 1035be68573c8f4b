"""Signatures on their way: small files that are carried as they are; the gate judges them."""

from __future__ import annotations

import os

from vcc.cache.digest import Digest
from vcc.cache.errors import VccError
from vcc.cache.folder import Folder
from vcc.cache.publish import sync_down
from vcc.cache.remote.base import Remote
from vcc.cache.remote.patience import Patience
from vcc.cache.trust.publickey import KEY_HEX
from vcc.cache.trust.signature import MAX_SIGNATURES, SIGNATURES, signature_file, verify
from vcc.cache.trust.statement import MAX_STATEMENT


def bring_signatures(
    store: Folder, own: Folder, remote: Remote, artifact: Digest, patience: Patience
) -> None:
    """Copy the signatures of an artifact from a remote, at most 16.

    One that is here stays, unless the same key verifiably signed again later.

    Raises:
        RemoteError, MissingArtifact: the remote failed.
        OSError, Unsafe: the store cannot be written.
    """
    prefix = f"v1/{SIGNATURES}/{artifact}/"
    what = f"listing the signatures of {artifact.short}"
    for key in patience.ask(what, lambda: _keys(remote, prefix)):
        data = _read(remote, f"{prefix}{key}", patience)
        put_signature(store, own, artifact, key, data)


def put_signature(store: Folder, own: Folder, artifact: Digest, key: str, data: bytes) -> None:
    """Store one signature that came from elsewhere, unless the one that is here is as good.

    Raises:
        OSError, Unsafe: the store cannot be written.
    """
    have = signature_file(store, artifact.hex, key)
    if have is not None and not _later(data, have, artifact, key):
        return
    place = (SIGNATURES, artifact.hex)
    temp = os.urandom(8).hex()
    own.write(temp, data)
    with store.below(*place, create=True) as folder:
        sync_down(store, place)
        os.rename(temp, key, src_dir_fd=own.fd, dst_dir_fd=folder.fd)
        folder.sync()


def _keys(remote: Remote, prefix: str) -> list[str]:
    """The keys that signed, bounded in number and form."""
    found: list[str] = []
    for path in remote.paths(prefix):
        key = path.removeprefix(prefix)
        if path.startswith(prefix) and KEY_HEX.match(key):
            found.append(key)
        if len(found) == MAX_SIGNATURES:
            break
    return sorted(found)


def _read(remote: Remote, path: str, patience: Patience) -> bytes:
    parts: list[bytes] = []

    def attempt() -> None:
        parts.clear()
        remote.get(path, parts.append, limit=MAX_STATEMENT)

    patience.ask("reading a signature", attempt)
    return b"".join(parts)


def _later(data: bytes, have: bytes, artifact: Digest, key: str) -> bool:
    """Whether `data` is a true signature and one of a later time than `have`."""
    if data == have:
        return False
    try:
        new = verify(data, artifact, key)
    except VccError:  # no signature, or no library to tell
        return False
    try:
        return new.signed_at > verify(have, artifact, key).signed_at
    except VccError:
        return True
