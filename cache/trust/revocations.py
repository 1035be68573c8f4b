"""Revocations: artifacts and keys that are refused under every policy, whoever signed."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from vcc.cache.canonical import FormatError
from vcc.cache.digest import is_digest
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.publickey import KEY_HEX

FILE = "revocations.json"


class Revoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When, in seconds since 1970, and why."""

    at: int
    why: str = ""

    def __str__(self) -> str:
        date = time.strftime("%Y-%m-%d", time.gmtime(max(0, min(self.at, 1 << 36))))
        return f"revoked on {date}" + (f" ({self.why})" if self.why else "")


class Revocations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is revoked: artifact ids and public keys, hex, each with when and why."""

    artifacts: Mapping[str, Revoked] = {}
    keys: Mapping[str, Revoked] = {}


def read_revocations(place: TrustPlace) -> Revocations:
    """Those of both trust folders together.

    Raises:
        FormatError, StorageError, Unsafe: they cannot be known, so nothing can be admitted.
    """
    artifacts: dict[str, Revoked] = {}
    keys: dict[str, Revoked] = {}
    for found in place.read(FILE, Revocations):
        bad = [name for name in found.artifacts if not is_digest(name)]
        bad += [name for name in found.keys if not KEY_HEX.match(name)]
        if bad:
            raise FormatError(f"{FILE} has an entry that revokes nothing", repr(bad[0])[:80])
        artifacts.update(found.artifacts)
        keys.update(found.keys)
    return Revocations(artifacts, keys)


def revoke(place: TrustPlace, *, artifact: str = "", key: str = "", why: str = "") -> str:
    """Add one to the user's file; returns the path.

    Raises:
        FormatError, StorageError, Unsafe: the file cannot be read or written.
    """
    own = place.read_own(FILE, Revocations) or Revocations()
    new = Revoked(max(0, int(time.time())), why)
    artifacts = {**own.artifacts, **({artifact: new} if artifact else {})}
    keys = {**own.keys, **({key: new} if key else {})}
    return str(place.write(FILE, Revocations(artifacts, keys)))
