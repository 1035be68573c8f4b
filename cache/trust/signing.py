"""Signing stored artifacts: only what this account made, unless it is asked for otherwise."""

from __future__ import annotations

from vcc.cache.blob import read_content
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.errors import MissingArtifact, UsageError
from vcc.cache.manifest import Manifest
from vcc.cache.owners import is_accepted
from vcc.cache.pulled import read_mark
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trouble import storage, user_name
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import Terms, sign, write_signature
from vcc.cache.trust.statement import Statement


class NotOurs(UsageError):
    """An artifact that this account did not make."""


def sign_entry(
    store: Store, entry: Entry, key: SecretKey, terms: Terms, *, foreign: bool = False
) -> Statement:
    """Sign an artifact of the local store and put the signature beside it.

    A signing key vouches for what its builder made. A store may hold what others put there under
    the same request, so that is refused: else a pull request's artifact gets the key of main.

    Args:
        store: its local tier holds the artifact.
        entry: which.
        key: of the signer.
        terms: what is said of the artifact.
        foreign: sign also what was pulled, or written by an account that is not listed.

    Raises:
        NotOurs: it was made elsewhere, and `foreign` was not said.
        MissingArtifact: it is not in the local store.
        Damaged, FormatError: its manifest is bad.
        StorageError, Unsafe: the signature could not be stored.
    """
    trouble = storage("sign in the store at", str(store.root))
    with trouble:
        try:
            with opened(store.root, create=False) as folder:
                found = read_content(folder, entry.id, None, MAX_BYTES)
                Manifest.decode(found.data)
                mark = read_mark(folder, entry.artifact)
                where = (
                    f"it was pulled from {mark.url}" if mark else _written_elsewhere(found.owner)
                )
                if where and not foreign:
                    raise NotOurs(
                        f"artifact {entry.id.short} was not built by this account",
                        where,
                        "--foreign signs it all the same; do so only after you have checked it",
                    )
                statement = sign(key, entry.id, terms)
                write_signature(folder, entry.artifact, key.public, statement.encode())
        except FileNotFoundError as error:
            raise MissingArtifact(f"there is no store at {store.root}", str(error)) from error
    return statement


def _written_elsewhere(owner: int) -> str:
    if is_accepted(owner):
        return ""
    if owner < 0:
        return "others than its owner can change its file"
    return f"it was written by {user_name(owner)}"
