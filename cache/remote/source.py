"""The remote of a store: asked on a miss, within bounds, and never the reason why a run fails.

It pulls the newest usable artifact that the gate admits. One process pulls, the others wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vcc.cache.errors import IntegrityError, LockTimeout, MissingArtifact, RemoteError, VccError
from vcc.cache.gate import Gate
from vcc.cache.key import Key
from vcc.cache.refs import read_refs
from vcc.cache.remote.base import Remote
from vcc.cache.remote.offers import offers
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import ON_A_MISS, Limits, Patience
from vcc.cache.remote.pull import Pulled, pull
from vcc.cache.remote.url import parse_url
from vcc.cache.request import Entry
from vcc.cache.single_flight import single_flight
from vcc.cache.tiers import reading, tiers_of

MAX_TRIED = 4
"""Artifacts that a look-up tries before it gives up."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """See `RemoteSource`.

    Args:
        address: its URL, which may hold a password.
        gate: whose artifacts are used.
        limits: bounds of one look-up with its pull.
        pulled: is told of what was pulled.
        refused: is told of an artifact that was passed over.
    """

    address: str = field(repr=False)
    gate: Gate
    limits: Limits = ON_A_MISS
    pulled: Callable[[Pulled, str], None] = lambda pulled, url: _log.info(
        "artifact %s pulled from %s", pulled.entry.id.short, url
    )
    refused: Callable[[VccError], None] = lambda error: _log.warning("%s", error)

    @property
    def url(self) -> str:
        """See `RemoteSource`."""
        return parse_url(self.address).shown

    def bring(self, root: Path, base: Key, usable: Callable[[Entry], bool]) -> bool:
        """See `RemoteSource`."""
        patience = Patience(self.limits)
        remote = open_remote(self.address, self.limits)
        try:
            found = offers(remote, patience, base.digest.hex)
            for line in found.bad:
                self.refused(RemoteError(line))
            entries = [entry for entry in found.entries if usable(entry)][:MAX_TRIED]
            return bool(entries) and self._alone(root, base, remote, entries, patience)
        finally:
            remote.close()

    def _alone(
        self, root: Path, base: Key, remote: Remote, entries: list[Entry], patience: Patience
    ) -> bool:
        """Pull the first that can be had; who waited for another process looks first."""
        try:
            with single_flight(
                root, entries[0].id, f"pulling {entries[0].title}", wait_s=self.limits.total_s
            ) as flight:
                if flight.waited and _has(root, base, entries[0]):
                    return True
                return self._first(root, remote, entries, patience)
        except LockTimeout as error:
            _log.info("not waited for any longer: %s", error)
            return self._first(root, remote, entries, patience)

    def _first(self, root: Path, remote: Remote, entries: list[Entry], patience: Patience) -> bool:
        failed: list[VccError] = []
        for entry in entries:
            try:
                done = pull(root, remote, entry, self.gate, patience, by_hand=False)
            except (RemoteError, IntegrityError, MissingArtifact) as error:
                failed.append(error)
                continue
            self._tell(failed)
            self.pulled(done, remote.url)
            return True
        self._tell(failed[1:])
        raise failed[0]

    def _tell(self, failed: list[VccError]) -> None:
        for error in failed:
            self.refused(error)


def _has(root: Path, base: Key, entry: Entry) -> bool:
    with reading(tiers_of(root, ())[0]) as store:
        return store is not None and entry in read_refs(store, base.digest.hex).entries
