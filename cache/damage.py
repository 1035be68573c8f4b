"""What a store tells about trouble: each thing once a process, and what is moved aside for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from vcc.cache.blob import Damaged, place
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError, VccError
from vcc.cache.folder import Folder
from vcc.cache.gate import Untrusted
from vcc.cache.quarantine import set_aside
from vcc.cache.refs import REFS
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.tiers import LOCAL, Tier
from vcc.cache.trouble import Unsafe

Place = tuple[str, ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Something bad that was taken out of use.

    Args:
        artifact: the artifact's id, the name of the bad ref, or the digest of the bad blob.
        reason: what is wrong with it.
        removed: whether it left the store; False in a store that cannot be written.
        tier: where it was found.
    """

    artifact: str
    reason: str
    removed: bool
    tier: str = LOCAL


def log_damage(damage: Damage) -> None:
    """The default report of damage: one warning in the log."""
    done = "was set aside" if damage.removed else "is not used"
    _log.warning("artifact %s is bad and %s: %s", damage.artifact[:12], done, damage.reason)


def log_trouble(error: VccError) -> None:
    """The default report of a tier that was passed over: one warning in the log."""
    _log.warning("%s", error)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of trouble, and what was told already.

    Args:
        on_damage: called once for each bad thing.
        on_trouble: called once for each error of a tier that was passed over.
        strict: such an error is raised instead.
        told: names of bad things by tier, and texts of errors.
    """

    on_damage: Callable[[Damage], None]
    on_trouble: Callable[[VccError], None]
    strict: bool
    told: dict[str, set[str]]

    def bad_in(self, tier: Tier) -> set[str]:
        """Names that are known to be bad in a tier."""
        return self.told.setdefault(tier.name, set())

    def damaged(self, tier: Tier, name: str, reason: str, places: list[Place]) -> None:
        """Report a bad thing once; in a tier of ours its files are moved aside."""
        if name in self.bad_in(tier):
            return
        self.bad_in(tier).add(name)
        removed = tier.writable and _moved(tier, places)
        self.on_damage(Damage(name, reason, removed, tier.name))

    def passed_over(self, tier: Tier, error: VccError, entry: Entry | None = None) -> None:
        """An error of one tier, where another tier may answer.

        Raises:
            VccError: the same error, where it must not be passed over.
        """
        if isinstance(error, Damaged) and entry is not None:
            at = place(error.digest) if error.digest else ref_place(entry)
            self.damaged(tier, at[-1], str(error), [at])
        elif isinstance(error, (StorageError, Unsafe)):
            if tier.writable and isinstance(error, Unsafe):
                raise error
            self.trouble(error)

    def trouble(self, error: VccError) -> None:
        """Tell of an error that something else makes up for; a strict store raises it."""
        if self.strict:
            raise error
        text, told = str(error), self.told.setdefault("trouble", set())
        if text not in told:
            told.add(text)
            self.on_trouble(error)


def ref_place(entry: Entry) -> Place:
    """The path components of an entry's ref below `v1`."""
    return (REFS, entry.base.digest.hex, entry.artifact)


def says_nothing(reason: str | VccError) -> bool:
    """Whether an error says nothing against an artifact: trouble of the place, or of trust."""
    return isinstance(reason, (StorageError, MissingArtifact, Untrusted, Unsafe))


def _moved(tier: Tier, places: list[Place]) -> bool:
    try:
        with opened(tier.root, create=False) as store:
            return _all_moved(store, places)
    except (OSError, IntegrityError):
        return False


def _all_moved(store: Folder, places: list[Place]) -> bool:
    done = True
    for *folders, name in places:
        try:
            with store.below(*folders) as folder:
                done = set_aside(store, folder, name) and done
        except FileNotFoundError:
            continue  # the folder is gone, and so is what lay there
    return done
