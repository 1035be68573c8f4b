"""The gate: whose artifacts are used. Asked at every load, before anything in a manifest is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vcc.cache.errors import ConfigError, IntegrityError
from vcc.cache.folder import Folder
from vcc.cache.request import Entry
from vcc.cache.settings import Settings
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

    def admit(self, store: Folder, tier: Tier, entry: Entry, manifest: bytes, owner: int) -> str:
        """Why the artifact is admitted, one line such as "written by this account".

        Args:
            store: the open `v1` folder of the tier.
            tier: where the manifest was read.
            entry: what the ref says of it.
            manifest: its bytes, whose SHA-256 is the artifact's id.
            owner: user id of the owner of the manifest's file.

        Raises:
            Untrusted: it is not admitted, with the reason.
        """


@dataclass(frozen=True, slots=True)
class Own:
    """Policy `own`: what this account or root wrote."""

    fast_check: bool = True
    fails_closed: bool = False

    def admit(self, store: Folder, tier: Tier, entry: Entry, manifest: bytes, owner: int) -> str:
        """As in `Gate`."""
        if owner == os.geteuid():
            return "written by this account"
        if owner == 0:
            return "written by root"
        raise Untrusted(
            f"artifact {entry.id.short} is not trusted", f"it was written by uid {owner}"
        )


def gate_of(settings: Settings, root: Path) -> Gate:
    """The gate that the settings ask for, at a store's root.

    Raises:
        ConfigError: the policy is not there.
    """
    if settings.policy in ("", "own"):
        return Own()
    raise ConfigError(f"VCC_POLICY={settings.policy} is not there yet", "", "Use own")
