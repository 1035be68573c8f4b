"""Detached signatures: made, checked, and kept beside the artifact.

signatures/<artifact id>/<public key>        one Statement; written anew when it is signed again
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from vcc.cache.canonical import FormatError
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, UsageError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.publish import own_folder, sync_down
from vcc.cache.trust.publickey import KEY_HEX, crypto, is_key
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.statement import MAX_STATEMENT, VERSION, Statement

SIGNATURES = "signatures"
MAX_SIGNATURES = 16
"""Files of one artifact that are looked at or carried along."""


class BadSignature(IntegrityError):
    """A signature that is not one by its key over this artifact."""

    id = "BAD_SIGNATURE"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a signer says beside "this artifact"; the fields of `Statement`.

    Args:
        lifetime_s: seconds until the signature expires; 0 for never.
    """

    builder: str = ""
    source_commit: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0
    lifetime_s: int = 0


def sign(key: SecretKey, artifact: Digest, terms: Terms, *, now: float | None = None) -> Statement:
    """A signed statement.

    Args:
        key: of the signer.
        artifact: the artifact's id.
        terms: what is said of it.
        now: seconds since 1970; the clock by default.

    Raises:
        UsageError: a field of `terms` is malformed.
    """
    at = max(0, int(time.time() if now is None else now))
    fields: dict[str, object] = {
        "artifact": artifact.hex,
        "key": key.public,
        "builder": terms.builder,
        "source_commit": terms.source_commit,
        "claims": dict(terms.claims),
        "epoch": terms.epoch,
        "signed_at": at,
        "expires_at": at + terms.lifetime_s if terms.lifetime_s else 0,
        "format_version": VERSION,
    }
    bare = Statement(**fields, signature="0" * 128)  # type: ignore[arg-type]
    try:
        bare.encode()  # refuses what no reader would take before anything is signed
    except FormatError as error:
        raise UsageError("a signature cannot say that", error.why) from error
    return Statement(**fields, signature=key.sign(bare.signed_bytes()).hex())  # type: ignore[arg-type]


def verify(data: bytes, artifact: Digest, key: str) -> Statement:
    """The statement of a signature file, if it is one by `key` over `artifact`.

    Time, revocation and whether the key is trusted are the caller's to check.

    Args:
        data: the file's bytes.
        artifact: what it must be about.
        key: the public key that must have signed, hex.

    Raises:
        FormatError, BadSignature: it is not.
        MissingExtra: cryptography is not installed.
    """
    statement = Statement.decode(data)
    if statement.artifact != artifact.hex:
        raise BadSignature("it is over another artifact", statement.artifact[:12])
    if statement.key != key or not is_key(key):
        raise BadSignature("it names another key", statement.key[:12])
    library = crypto("asymmetric.ed25519")
    public = library.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    try:
        public.verify(bytes.fromhex(statement.signature), statement.signed_bytes())
    except Exception as error:  # InvalidSignature; nothing that goes wrong here may pass
        raise BadSignature("it was not made by its key over these bytes") from error
    return statement


def signatures(store: Folder, artifact: str) -> tuple[bytes, ...]:
    """The signature files of an artifact, unverified, at most 16, sorted by key."""
    return tuple(signature_files(store, artifact).values())


def signature_files(store: Folder, artifact: str) -> dict[str, bytes]:
    """Public key to unverified bytes, of at most 16 files; those that cannot be read are left out.

    Args:
        store: the open `v1` folder.
        artifact: the artifact's id, hex.
    """
    names = signer_names(store, artifact)[:MAX_SIGNATURES]
    found = ((name, signature_file(store, artifact, name)) for name in names)
    return {name: data for name, data in found if data is not None}


def signer_names(store: Folder, artifact: str) -> list[str]:
    """The keys that signature files are named by, sorted."""
    try:
        with store.below(SIGNATURES, artifact) as folder:
            return [name for name in folder.names() if KEY_HEX.match(name)]
    except (OSError, IntegrityError):
        return []


def signature_file(store: Folder, artifact: str, key: str) -> bytes | None:
    """The unverified bytes of one signature; None where there is none that can be read."""
    try:
        with store.below(SIGNATURES, artifact) as folder:
            return folder.read(key, limit=MAX_STATEMENT)
    except (OSError, IntegrityError, WrongSize):
        return None


def write_signature(store: Folder, artifact: str, key: str, data: bytes) -> None:
    """Put a signature beside its artifact; an older one by the same key is replaced.

    Args:
        store: the open `v1` folder.
        artifact, key: hex.
        data: the file's bytes.

    Raises:
        OSError, Unsafe: it could not be written; an older one is as it was.
    """
    with own_folder(store) as own, store.below(SIGNATURES, artifact, create=True) as folder:
        temp = os.urandom(8).hex()
        own.write(temp, data)
        sync_down(store, (SIGNATURES, artifact))
        os.rename(temp, key, src_dir_fd=own.fd, dst_dir_fd=folder.fd)
        folder.sync()
