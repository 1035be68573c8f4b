"""The policies: whose artifacts are loaded.

own     what this account, root or a listed account wrote, and what is signed
signed  what carries a signature by a trusted key; the default where a group may write the store
prod    as signed, and the signature says what `prod.json` asks for; nothing is built instead

Revocations count under every policy. What cannot be known (a trust folder that cannot be read, a
package that is missing) admits nothing. Only `own` is on the way of a plain warm boot, so that
what the others need is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import IntegrityError, VccError
from vcc.cache.folder import Folder
from vcc.cache.gate import Gate, Untrusted
from vcc.cache.manifest import NewerFormat
from vcc.cache.owners import is_accepted
from vcc.cache.pulled import read_mark
from vcc.cache.request import Entry
from vcc.cache.root import opened_place
from vcc.cache.tiers import Tier
from vcc.cache.trouble import user_name
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.revocations import Revocations, read_revocations

if TYPE_CHECKING:
    from vcc.cache.trust.judged import Judged

OWN, SIGNED, PROD = "own", "signed", "prod"

_HINTS = {
    OWN: "vcc trust add FILE.pub trusts the key that signed it; vcc trust add --remote URL trusts "
    "what is pulled from there",
    SIGNED: "vcc sign {id} --key FILE signs it, vcc trust add FILE.pub trusts the key",
    PROD: "vcc trust ls shows what prod asks for; docs/security.md tells how to meet it",
}
_SHARED = (
    "; chmod g-w {root} makes the store yours alone, VCC_POLICY=own takes what you wrote yourself"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One artifact before the gate; the arguments of `Gate.admit`, and who is trusted."""

    store: Folder
    tier: Tier
    entry: Entry
    manifest: bytes
    owner: int
    place: TrustPlace
    revoked: Revocations
    pulls: bool

    @property
    def writer(self) -> str:
        """The account that wrote it, if its word is as good as ours; else empty."""
        if not is_accepted(self.owner):
            return ""
        names = {os.geteuid(): "this account", 0: "root"}
        return f"written by {names.get(self.owner) or user_name(self.owner)}"

    def judged(self) -> Judged:
        """Its signatures."""
        from vcc.cache.trust.judged import judge
        from vcc.cache.trust.keyring import Keyring

        return judge(self.store, self.entry.id, Keyring.read(self.place), self.revoked)


class _Refused(Exception):
    """Why a rule does not admit a case."""


@dataclass(frozen=True, slots=True)
class PolicyGate:
    """The gate of a store.

    Args:
        policy: "own", "signed" or "prod"; empty for the default of each tier.
        place: where it stands who is trusted.
        pulls: whether `own` takes what was pulled by hand or from a trusted remote, unsigned.
    """

    policy: str
    place: TrustPlace
    pulls: bool = True

    @property
    def fast_check(self) -> bool:
        """As in `Gate`: where only this account can write, its own sums are good enough."""
        return self.policy in ("", OWN)

    @property
    def fails_closed(self) -> bool:
        """As in `Gate`."""
        return self.policy == PROD

    def policy_of(self, store: Folder) -> str:
        """The policy for what lies in `store`."""
        return self.policy or (SIGNED if store.shared else OWN)

    def takes_unsigned(self, root: Path) -> bool:
        """As in `Gate`; a root that cannot be looked at gives nothing."""
        try:
            return policy_at(root, self.policy)[0] == OWN
        except (OSError, VccError):
            return False

    def for_pickles(self) -> Gate:
        """As in `Gate`."""
        return replace(self, pulls=False)

    def admit(self, store: Folder, tier: Tier, entry: Entry, manifest: bytes, owner: int) -> str:
        """As in `Gate`."""
        policy = self.policy_of(store)
        try:
            revoked = read_revocations(self.place)
            case = Case(store, tier, entry, manifest, owner, self.place, revoked, self.pulls)
            if entry.artifact in revoked.artifacts:
                raise _Refused(f"it was {revoked.artifacts[entry.artifact]}")
            return _RULES[policy](case)
        except _Refused as refused:
            raise self._untrusted(policy, tier, entry, str(refused)) from refused
        except NewerFormat:
            raise
        except (VccError, OSError) as error:
            why = f"whom to trust cannot be known: {error}"
            hint = getattr(error, "hint", "") or _HINTS[policy]
            raise self._untrusted(policy, tier, entry, why, hint) from error

    def _untrusted(
        self, policy: str, tier: Tier, entry: Entry, why: str, hint: str = ""
    ) -> Untrusted:
        by_default = " (its group may write the store)" if policy == SIGNED != self.policy else ""
        text = hint or _HINTS[policy] + (_SHARED if by_default else "")
        return Untrusted(
            f"artifact {entry.id.short} is not trusted under policy {policy}{by_default}",
            why,
            text.replace("{id}", entry.id.short).replace("{root}", str(tier.root)),
        )


def policy_at(root: Path, named: str) -> tuple[str, str]:
    """The policy for the store at `root`, and where it comes from.

    Raises:
        Unsafe: the root is refused under any policy.
        OSError: it cannot be looked at.
    """
    if named:
        return named, "--policy or VCC_POLICY"
    try:
        with opened_place(root, create=False) as folder:
            shared = folder.shared
    except FileNotFoundError:
        return OWN, "the default"
    return (SIGNED, "the group may write the store") if shared else (OWN, "the default")


def _own(case: Case) -> str:
    why, wrote = "others than its owner can change its file", case.writer
    if wrote:
        mark = read_mark(case.store, case.entry.artifact)
        if mark is None:
            return wrote
        if case.pulls and mark.by_hand:
            return f"taken from {mark.url} by hand"
        if case.pulls and _from_trusted(case, mark.url):
            return f"pulled from the trusted remote {mark.url}"
        what = ", which is not a trusted remote" if case.pulls else ", and it holds pickles"
        why = f"it was pulled from {mark.url}{what}"
    elif case.owner >= 0:
        why = f"it was written by {user_name(case.owner)}"
    found = case.judged()
    if found.good:
        return _signed_by(found)
    raise _Refused("; ".join((why, *(found.bad or ("it is not signed",)))))


def _from_trusted(case: Case, url: str) -> bool:
    from vcc.cache.trust.remotes import is_trusted, read_remotes

    return is_trusted(url, read_remotes(case.place))


def _signed(case: Case) -> str:
    found = case.judged()
    if found.good:
        return _signed_by(found)
    raise _Refused("; ".join(found.bad or ("it is not signed",)))


def _signed_by(found: Judged) -> str:
    key, statement = found.good[0]
    builder = f" for {statement.builder}" if statement.builder else ""
    return f"signed by {key.name}{builder}"


def _prod(case: Case) -> str:
    from vcc.cache.manifest import Manifest
    from vcc.cache.trust.prod import broken_rule, read_rules

    rules = read_rules(case.place)
    found = case.judged()
    try:
        manifest = Manifest.decode(case.manifest)
    except IntegrityError as error:
        raise _Refused(str(error)) from error
    broken = []
    for key, statement in found.good:
        wrong = (broken_rule(one, key, statement, manifest) for one in rules)
        first = next(filter(None, wrong), "")
        if not first:
            return f"signed by {key.name} for {statement.builder}, epoch {statement.epoch}"
        broken.append(f"signed by {key.name}, but {first}")
    raise _Refused("; ".join((*broken, *found.bad)) or "it is not signed")


_RULES: Mapping[str, Callable[[Case], str]] = {OWN: _own, SIGNED: _signed, PROD: _prod}
