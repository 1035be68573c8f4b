"""Signatures of an artifact, judged: which of them count here and why the others do not."""

from __future__ import annotations

import time
from dataclasses import dataclass

from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError
from vcc.cache.folder import Folder
from vcc.cache.trust.keyring import Keyring, TrustedKey
from vcc.cache.trust.revocations import Revocations
from vcc.cache.trust.signature import MAX_SIGNATURES, signature_file, signer_names, verify
from vcc.cache.trust.statement import Statement

SKEW_S = 300
"""Seconds that a signer's clock may be ahead of ours."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The signatures of one artifact.

    Args:
        good: those that hold and count, with their keys.
        bad: why each of the others does not, for people.
    """

    good: tuple[tuple[TrustedKey, Statement], ...]
    bad: tuple[str, ...]


def judge(store: Folder, artifact: Digest, ring: Keyring, revoked: Revocations) -> Judged:
    """Look for a signature by each trusted key; the files of others are only counted.

    So a flood of files hides nothing: what is read is bounded by the keyring.

    Args:
        store: the open `v1` folder that the artifact lies in.
        artifact: its id.
        ring: whose signatures count.
        revoked: what does not count any more.

    Raises:
        MissingExtra: there is a signature to check, but cryptography is not installed.
    """
    good: list[tuple[TrustedKey, Statement]] = []
    bad: list[str] = []
    for key in ring.keys:
        data = signature_file(store, artifact.hex, key.key)
        if data is None:
            continue
        try:
            statement = verify(data, artifact, key.key)
        except IntegrityError as error:
            bad.append(f"the signature of {key.name} is bad: {error}")
            continue
        wrong = _wrong(key, statement, revoked)
        if wrong:
            bad.append(f"the signature of {key.name} does not count: {wrong}")
        else:
            good.append((key, statement))
    return Judged(tuple(good), (*bad, *_strangers(store, artifact, ring)))


def _wrong(key: TrustedKey, statement: Statement, revoked: Revocations) -> str:
    now = time.time()
    if key.key in revoked.keys:
        return f"the key was {revoked.keys[key.key]}"
    if statement.signed_at > now + SKEW_S:
        return (
            f"it is not yet valid: it was made at {_date(statement.signed_at)}, and the clock here "
            f"says {_date(now)}; check both clocks"
        )
    if statement.expires_at and statement.expires_at <= now:
        return f"it expired at {_date(statement.expires_at)}; the clock here says {_date(now)}"
    if key.builders and statement.builder not in key.builders:
        return f"the key may not speak for builder {statement.builder!r}"
    return ""


def _strangers(store: Folder, artifact: Digest, ring: Keyring) -> list[str]:
    known = {key.key for key in ring.keys}
    names = [name for name in signer_names(store, artifact.hex) if name not in known]
    if not names:
        return []
    shown = ", ".join(name[:12] for name in names[:MAX_SIGNATURES])
    return [f"signed by keys that are not trusted here: {shown}"]


def _date(seconds: float) -> str:
    bounded = max(0, min(seconds, 1 << 37))  # the year 6325: beyond, gmtime gives up
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(bounded))
