"""Keys, trust folders and signed artifacts for the tests of trust."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.stores import BLOBS, manifest_of
from vcc.cache.errors import Exit
from vcc.cache.gate import Gate, Untrusted
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.store import Store
from vcc.cache.trust.keyring import TrustedKey, add_key
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.policy import PolicyGate
from vcc.cache.trust.prod import FILE, ProdRules
from vcc.cache.trust.secretkey import SecretKey
from vcc.cache.trust.signature import Terms, sign, write_signature

COMMIT = "0123456789abcdef" * 2 + "01234567"
MAIN = Terms(builder="ci-main", source_commit=COMMIT, epoch=7, claims={"ref": "refs/heads/main"})
RULES = ProdRules(
    builders=("ci-main",),
    source_commits=("01234567*",),
    models=("ab" * 32,),
    minimum_epoch=5,
    claims={"ref": "refs/heads/main"},
)


@dataclass(frozen=True)
class Site:
    """A store with one artifact, and trust folders."""

    root: Path
    place: TrustPlace
    entry: Entry

    def store(self, policy: str = "") -> Store:
        """The store under a policy."""
        return Store(self.root, on_damage=lambda damage: None, gate=self.gate(policy))

    def gate(self, policy: str = "") -> Gate:
        """The gate of a policy."""
        return PolicyGate(policy, self.place)

    def trust(self, key: SecretKey, name: str = "main", *builders: str) -> None:
        """Trust a key."""
        add_key(self.place, TrustedKey(key=key.public, name=name, builders=builders))

    def sign(self, key: SecretKey, terms: Terms = MAIN, now: float | None = None) -> None:
        """Put a signature by `key` beside the artifact."""
        statement = sign(key, self.entry.id, terms, now=time.time() if now is None else now)
        self.put(key.public, statement.encode())

    def put(self, name: str, data: bytes) -> None:
        """Put any bytes where the signature by a key lies."""
        with opened(self.root, create=True) as folder:
            write_signature(folder, self.entry.artifact, name, data)

    def rule(self, **changes: object) -> None:
        """Write prod.json."""
        fields = {name: getattr(RULES, name) for name in RULES.__struct_fields__}
        self.place.write(FILE, ProdRules(**{**fields, **changes}))  # type: ignore[arg-type]

    def why(self, policy: str = "") -> str:
        """Why the artifact is admitted."""
        return self.store(policy).load(self.entry).trust


def site_at(folder: Path, mode: str = "full") -> Site:
    """A site in an empty folder; the gate plays no part in publishing."""
    root = folder / "store"
    place = TrustPlace(folder / "trust", folder / "system", True)
    entry = Store.open(root, on_damage=lambda damage: None).publish(manifest_of(mode), BLOBS)
    return Site(root, place, entry)


def refused(site: Site, policy: str = "") -> Untrusted:
    """The error with which the gate refuses the site's artifact."""
    with pytest.raises(Untrusted) as caught:
        site.store(policy).load(site.entry)
    assert (caught.value.exit, caught.value.id) == (Exit.INTEGRITY, "UNTRUSTED")
    assert caught.value.hint
    return caught.value
