"""The store: look up, load, publish. See `docs/format.md` for the layout.

Nothing is created before the first write, a look-up reads refs only, and no lock is needed for
any of it to be right. The local tier is asked first, then the lower ones, then the remote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from vcc.cache.blob import Damaged, place
from vcc.cache.damage import Damage, Watch, log_damage, log_trouble, ref_place, says_nothing
from vcc.cache.errors import StorageError, VccError
from vcc.cache.explain import Miss, explain_miss
from vcc.cache.gate import Gate, default_gate, gate_of
from vcc.cache.key import Key, cleaned
from vcc.cache.load import Loading
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest
from vcc.cache.refs import REFS, bases, newest_first, read_refs
from vcc.cache.request import Entry
from vcc.cache.root import LAYOUT, opened
from vcc.cache.settings import Settings, cache_root, read_settings
from vcc.cache.tiers import RemoteSource, Tier, reading, tiers_of
from vcc.cache.trouble import Unsafe, storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """A store at a root folder, with the tiers below it.

    Args:
        root: absolute path of the local tier; need not exist.
        on_damage: called once per bad entry and process.
        lower: roots of read-only stores, first one first.
        gate: whose artifacts are used.
        remote: asked when no tier has an answer; None for nobody.
        strict: trouble of a tier is an error, not something to be told and passed over.
        on_trouble: called once for each error of a tier that is passed over.
    """

    root: Path
    on_damage: Callable[[Damage], None] = log_damage
    lower: tuple[Path, ...] = ()
    gate: Gate = field(default_factory=default_gate)
    remote: RemoteSource | None = None
    strict: bool = False
    on_trouble: Callable[[VccError], None] = log_trouble
    _told: dict[str, set[str]] = field(default_factory=dict, repr=False, compare=False)
    _failed: dict[str, VccError] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(
        cls,
        root: Path | None = None,
        *,
        on_damage: Callable[[Damage], None] = log_damage,
        settings: Settings | None = None,
    ) -> Store:
        """The store at `root`, else where the settings say, with all that they say of it.

        Creates nothing.

        Args:
            root: of the local tier.
            on_damage: called once per bad entry and process.
            settings: instead of those of the environment.

        Raises:
            ConfigError: a setting cannot be read.
            UsageError: the remote's URL is wrong.
        """
        settings, at = settings or read_settings(), cache_root(root)
        gate = gate_of(settings)
        return cls(
            at,
            on_damage,
            lower=settings.lower,
            gate=gate,
            remote=_remote(settings, gate),
            strict=settings.strict or settings.policy == "prod",
        )

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Where it looks, in this order."""
        return tiers_of(self.root, self.lower)

    def find(
        self,
        base: Key,
        wanted: Mapping[str, str] | None = None,
        *,
        accept: Callable[[Entry], bool] = lambda entry: True,
    ) -> tuple[Entry, ...]:
        """The entries that answer a request, newest first; equal ones of two tiers once.

        Args:
            base: the part of the request that is always stated.
            wanted: open fields that must be equal; fields left out match anything.
            accept: the caller's host rules; the remote is asked when no entry passes and loads.

        Raises:
            Unsafe: the root is not safe to use.
            StorageError: the store cannot be read. A store that is not there answers nothing.
        """

        def usable(entry: Entry) -> bool:
            return not entry.differences(wanted or {}) and accept(entry)

        found = tuple(entry for entry in self._refs(base.digest.hex) if usable(entry))
        if self._has_good(found) or not self._brought(base, usable):
            return found
        return tuple(entry for entry in self._refs(base.digest.hex) if usable(entry))

    def misses(self, base: Key, wanted: Mapping[str, str] | None = None) -> Miss:
        """Why `find` answered nothing; raises as `find`."""
        return explain_miss(base, wanted or {}, self.entries())

    def remote_failure(self, base: Key) -> VccError | None:
        """What kept the remote from answering when `find` asked it last; None where nothing did."""
        return self._failed.get(base.digest.hex)

    def entries(self) -> Iterator[Entry]:
        """All entries of all tiers, newest first. Raises as `find`."""
        names = sorted({base for found in self._ask(self._bases_in) for base in found})
        found = [entry for base in names for entry in self._refs(base)]
        return iter(sorted(found, key=newest_first))

    def load(self, entry: Entry, *, full: bool = False) -> Loaded:
        """The artifact of an entry, its manifest verified and admitted.

        Where a tier lacks or spoils a file, the next one is asked, also for each blob later.

        Args:
            entry: which.
            full: compare SHA-256 of each blob, also where XXH3-128 would do.

        Raises:
            MissingArtifact: it is gone, or of a format that only a later vcc reads.
            Damaged: manifest or ref are wrong; give it to `quarantine`.
            Untrusted: the gate does not admit it.
            StorageError, Unsafe: the store cannot be read.
        """
        fast = self.gate.fast_check and not full
        return Loading(entry, self.tiers, self.gate, self._watch, fast).loaded()

    def publish(self, manifest: Manifest, blobs: Mapping[str, bytes]) -> Entry:
        """Store an artifact; it is visible when this returns and complete whenever it is visible.

        It is written to the local tier, whole: a lower directory may be gone tomorrow.

        Args:
            manifest: its `blobs` are filled in here; `created` too when it is 0. The title may
                come from a path: what cannot be stored of it becomes a question mark.
            blobs: name to bytes.

        Raises:
            StorageError: it could not be written; nothing is visible, earlier entries are as
                they were, and `Loaded.of(manifest, blobs)` is the artifact in memory.
            Unsafe: the root is not safe to use.
            FormatError: the manifest breaks a rule.
        """
        from vcc.cache import publish as publishing  # a look-up does not pay for the import

        full = manifest.with_blobs(blobs)
        created = full.created or max(0, int(time.time()))
        full = msgspec.structs.replace(full, created=created, title=cleaned(full.title))
        trouble = storage("write to the store at", str(self.root))
        with trouble, opened(self.root, create=True) as store:
            entry = publishing.publish(store, full, blobs)
        self._watch.bad_in(self.tiers[0]).discard(entry.artifact)
        return entry

    def quarantine(self, entry: Entry, reason: str | VccError) -> None:
        """Take a bad entry out of use: reported once, moved aside, a miss from now on.

        In a lower tier it stays where it is, and this process does not look at it again.

        Args:
            entry: the bad entry.
            reason: what is wrong; a `Damaged` error also sets its blob aside. Trouble that says
                nothing against the entry (a storage error, a later format, a writer who is not
                trusted) leaves it alone.

        Never raises.
        """
        if says_nothing(reason):
            return
        local, *lower = self.tiers
        digest = reason.digest if isinstance(reason, Damaged) else None
        bad = [ref_place(entry), *([place(digest)] if digest else [])]
        holding = [tier for tier in lower if _has(tier, entry)]
        if not holding or _has(local, entry):
            self._watch.damaged(local, entry.artifact, str(reason), bad)
        for tier in holding:
            self._watch.damaged(tier, entry.artifact, str(reason), bad)

    @property
    def _watch(self) -> Watch:
        return Watch(self.on_damage, self.on_trouble, self.strict, self._told)

    def _refs(self, base: str) -> tuple[Entry, ...]:
        """The readable refs of one base, newest first; bad ones are set aside."""
        joined: dict[str, Entry] = {}
        for found in self._ask(lambda tier: self._refs_in(tier, base)):
            for entry in found:
                joined.setdefault(entry.artifact, entry)
        return tuple(sorted(joined.values(), key=newest_first))

    def _refs_in(self, tier: Tier, base: str) -> tuple[Entry, ...]:
        with reading(tier) as store:
            if store is None:
                return ()
            refs = read_refs(store, base, self._watch.bad_in(tier))
        for name, reason in refs.bad:
            self._watch.damaged(tier, name, reason, [(REFS, base, name)])
        return refs.entries

    def _has_good(self, found: tuple[Entry, ...]) -> bool:
        """Whether one of these loads; only where a remote could make up for it is that tried.

        An entry that the gate does not admit, or that is damaged, must not keep the remote from
        being asked: it may have the right one, or its signature.
        """
        return any(self.remote is None or self._loads(entry) for entry in found)

    def _loads(self, entry: Entry) -> bool:
        try:
            return self.load(entry) is not None
        except VccError:
            return False

    def _brought(self, base: Key, usable: Callable[[Entry], bool]) -> bool:
        """Whether the remote had an answer; its failure costs a build and nothing else."""
        if self.remote is None:
            return False
        self._failed.pop(base.digest.hex, None)
        try:
            return self.remote.bring(self.root, base, usable)
        except VccError as error:
            self._failed[base.digest.hex] = error
            self._watch.trouble(error)
            return False

    def _bases_in(self, tier: Tier) -> tuple[str, ...]:
        with reading(tier) as store:
            return bases(store) if store else ()

    def _ask(self, question: Callable[[Tier], T]) -> list[T]:
        """The answers of all tiers; one that cannot be read is passed over, unless it is alone."""
        answers = []
        for tier in self.tiers:
            try:
                answers.append(question(tier))
            except (StorageError, Unsafe) as error:
                if not self.lower:
                    raise
                self._watch.passed_over(tier, error)
        return answers


def _has(tier: Tier, entry: Entry) -> bool:
    """Whether the ref of an entry lies in a tier, as far as that can be told."""
    return tier.root.joinpath(LAYOUT, *ref_place(entry)).is_file()


def _remote(settings: Settings, gate: Gate) -> RemoteSource | None:
    if not settings.remote:
        return None
    from vcc.cache.remote.source import source_of  # most stores have none

    return source_of(settings, gate)
