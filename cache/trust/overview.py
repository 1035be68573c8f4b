"""Who is trusted here, in one value: for `vcc trust ls` and `vcc doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vcc.cache.canonical import FormatError
from vcc.cache.trust.keyring import Keyring
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import policy_at
from vcc.cache.trust.prod import FILE as PROD_FILE
from vcc.cache.trust.prod import ProdRules, read_rules
from vcc.cache.trust.remotes import read_remotes
from vcc.cache.trust.revocations import Revocations, read_revocations


@dataclass(frozen=True, slots=True)
class Overview:
    """Who is trusted at a store.

    Args:
        policy: the one that holds for the local tier.
        because: where it comes from.
        place: the trust folders.
        ring: trusted keys.
        remotes: trusted remotes.
        revoked: what is refused whoever signed it.
        rules: of policy prod; empty where no file has any.
    """

    policy: str
    because: str
    place: TrustPlace
    ring: Keyring
    remotes: tuple[str, ...]
    revoked: Revocations
    rules: tuple[ProdRules, ...]


def overview(root: Path, named: str, place: TrustPlace) -> Overview:
    """Read all of it.

    Args:
        root: of the local store; need not exist.
        named: the policy that was asked for; empty for the default.
        place: the trust folders.

    Raises:
        FormatError, StorageError, Unsafe: something of it cannot be known.
    """
    policy, because = policy_at(root, named)
    return Overview(
        *(policy, because, place, Keyring.read(place), read_remotes(place)),
        *(read_revocations(place), _rules(place)),
    )


def _rules(place: TrustPlace) -> tuple[ProdRules, ...]:
    if not place.read(PROD_FILE, ProdRules):
        return ()
    try:
        return read_rules(place)
    except FormatError as error:
        raise FormatError(f"{PROD_FILE} cannot be used", str(error)) from error
