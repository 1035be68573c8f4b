"""The gate: whose artifacts are used. Asked at every load, before anything in a manifest is."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from vcc.cache.errors import IntegrityError
from vcc.cache.folder import Folder
from vcc.cache.request import Entry
from vcc.cache.settings import Settings, read_settings
from vcc.cache.tiers import Tier


class Untrusted(IntegrityError):
    """An artifact whose bytes are whole, but whose writer is not trusted."""

    id = "UNTRUSTED"


class Gate(Protocol):
    """Decides whose artifacts are used."""

    @property
    def fast_check(self) -> bool:
        """Whether XXH3-128 may stand for SHA-256 where no other account could write the bytes."""

    @property
    def fails_closed(self) -> bool:
        """Whether a run ends when no artifact is admitted, instead of building one."""

    def takes_unsigned(self, root: Path) -> bool:
        """Whether code of the store at `root` that bears no signature is used, as a shelf's."""

    def for_pickles(self) -> Gate:
        """The gate for what another program will unpickle: what was pulled needs a signature."""

    def admit(self, store: Folder, tier: Tier, entry: Entry, manifest: bytes, owner: int) -> str:
        """Why the artifact is admitted, one line such as "written by this account".

        Nothing but the manifest has been read by then.

        Args:
            store: the open `v1` folder of the tier.
            tier: where the manifest was read.
            entry: what the ref says of it.
            manifest: its bytes, whose SHA-256 is the artifact's id.
            owner: user id of the one account that can have written the manifest's file;
                `owners.UNKNOWN` where others could have too.

        Raises:
            Untrusted: it is not admitted, with the reason.
        """


def gate_of(settings: Settings) -> Gate:
    """The gate that the settings ask for."""
    from vcc.cache.trust.place import TrustPlace
    from vcc.cache.trust.policy import PolicyGate  # it imports this module

    return PolicyGate(settings.policy, TrustPlace.open(settings.trust_dir))


def default_gate() -> Gate:
    """The gate that the environment asks for; raises ConfigError as `read_settings`."""
    return gate_of(read_settings())
