"""Asking a remote on a miss: the newest usable artifact that the gate admits is pulled.

One process pulls, the others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from vcc.cache.request import Entry
from vcc.cache.single_flight import single_flight
from vcc.cache.tiers import reading, tiers_of

MAX_TRIED = 4
"""Artifacts that a look-up tries before it gives up."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A look-up that no store could answer.

    Args:
        root: of the local store.
        base: the part of the request that is always stated.
        usable: whether an entry answers.
        gate: whose artifacts are used.
        told: hears of what was pulled and what was passed over, a line each.
        limits: bounds of the look-up with its pull.
    """

    root: Path
    base: Key
    usable: Callable[[Entry], bool]
    gate: Gate
    told: Callable[[str], None]
    limits: Limits = ON_A_MISS

    def ask(self, url: str) -> bool:
        """Ask the remote at `url`; whether the local store has something now that it had not.

        Raises:
            RemoteError, MissingArtifact, IntegrityError: it offers something, which cannot be had.
            StorageError, Unsafe: the local store cannot be written.
        """
        patience = Patience(self.limits)
        remote = open_remote(url, self.limits)
        try:
            found = offers(remote, patience, self.base.digest.hex)
            for line in found.bad:
                self.told(line)
            entries = [entry for entry in found.entries if self.usable(entry)][:MAX_TRIED]
            return bool(entries) and self._alone(remote, entries, patience)
        finally:
            remote.close()

    def _alone(self, remote: Remote, entries: list[Entry], patience: Patience) -> bool:
        """Pull the first that can be had; who waited for another process looks first."""
        what, wait_s = f"pulling artifact {entries[0].id.short}", patience.left_s
        try:
            with single_flight(self.root, entries[0].id, what, wait_s=wait_s) as flight:
                if flight.waited and self._has(entries[0]):
                    return True
                return self._first(remote, entries, patience)
        except LockTimeout as error:
            raise RemoteError("another process still pulls this artifact", error.why) from error

    def _first(self, remote: Remote, entries: list[Entry], patience: Patience) -> bool:
        failed: list[VccError] = []
        for entry in entries:
            try:
                done = pull(self.root, remote, entry, self.gate, patience, by_hand=False)
            except (RemoteError, IntegrityError, MissingArtifact) as error:
                failed.append(error)
                continue
            self._tell(failed)
            self.told(_line(done, remote.url))
            return True
        self._tell(failed[1:])
        raise failed[0]

    def _tell(self, failed: list[VccError]) -> None:
        for error in failed:
            self.told(str(error))

    def _has(self, entry: Entry) -> bool:
        with reading(tiers_of(self.root, ())[0]) as store:
            base = self.base.digest.hex
            return store is not None and entry in read_refs(store, base).entries


def _line(done: Pulled, url: str) -> str:
    return f"artifact {done.entry.id.short} pulled from {url}: {done.received} bytes, {done.trust}"
