"""The store: look up, load, publish. See `docs/format.md` for the layout.

Nothing is created before the first write, a look-up reads refs only, and no lock is needed for
any of it to be right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vcc.cache.blob import MAX_BLOB, Damaged, place, read_blob
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError, VccError
from vcc.cache.explain import Miss, explain_miss
from vcc.cache.folder import Folder
from vcc.cache.key import Key, cleaned
from vcc.cache.loaded import Loaded
from vcc.cache.manifest import Manifest, NewerFormat
from vcc.cache.quarantine import set_aside
from vcc.cache.refs import REFS, bases, check_same, newest_first, read_refs
from vcc.cache.request import Entry
from vcc.cache.root import opened
from vcc.cache.settings import cache_root
from vcc.cache.trouble import storage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """A bad entry that was taken out of use.

    Args:
        artifact: the artifact's id, or the name of the bad ref.
        reason: what is wrong with it.
        removed: whether it left the store; False on a store that cannot be written.
    """

    artifact: str
    reason: str
    removed: bool


def log_damage(damage: Damage) -> None:
    """The default report of damage: one warning in the log."""
    _log.warning("artifact %s is bad and was set aside: %s", damage.artifact[:12], damage.reason)


@dataclass(frozen=True, slots=True)
class Store:
    """A store at a root folder.

    Args:
        root: absolute path; need not exist.
        on_damage: called once per bad entry and process.
    """

    root: Path
    on_damage: Callable[[Damage], None] = log_damage
    _bad: set[str] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def open(
        cls, root: Path | None = None, *, on_damage: Callable[[Damage], None] = log_damage
    ) -> Store:
        """The store at `root`, else where the settings say. Creates nothing."""
        return cls(cache_root(root), on_damage)

    def find(
        self,
        base: Key,
        wanted: Mapping[str, str] | None = None,
        *,
        accept: Callable[[Entry], bool] = lambda entry: True,
    ) -> tuple[Entry, ...]:
        """The entries that answer a request, newest first.

        Args:
            base: the part of the request that is always stated.
            wanted: open fields that must be equal; fields left out match anything.
            accept: the caller's host rules.

        Raises:
            Unsafe: the root is not safe to use.
            StorageError: the store cannot be read. A store that is not there answers nothing.
        """
        found = self._refs(base.digest.hex)
        return tuple(e for e in found if not e.differences(wanted or {}) and accept(e))

    def misses(self, base: Key, wanted: Mapping[str, str] | None = None) -> Miss:
        """Why `find` answered nothing; raises as `find`."""
        return explain_miss(base, wanted or {}, self.entries())

    def entries(self) -> Iterator[Entry]:
        """All entries, newest first. Raises as `find`."""
        with self._reading() as store:
            names = bases(store) if store else ()
        found = [entry for base in names for entry in self._refs(base)]
        return iter(sorted(found, key=newest_first))

    def load(self, entry: Entry) -> Loaded:
        """The artifact of an entry, its manifest verified.

        Raises:
            MissingArtifact: it is gone, or of a format that only a later vcc reads.
            Damaged: manifest or ref are wrong; give it to `quarantine`.
            StorageError, Unsafe: the store cannot be read.
        """
        data = self._blob(entry.id, None, MAX_BYTES)
        try:
            manifest = Manifest.decode(data)
        except NewerFormat:
            raise
        except IntegrityError as error:
            raise Damaged(error.what, error.why, error.hint, entry.id) from error
        check_same(entry, Entry.of(manifest, entry.id))
        return Loaded(manifest, lambda ref: self._blob(ref.digest, ref.size))

    def publish(self, manifest: Manifest, blobs: Mapping[str, bytes]) -> Entry:
        """Store an artifact; it is visible when this returns and complete whenever it is visible.

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
        self._bad.discard(entry.artifact)
        return entry

    def quarantine(self, entry: Entry, reason: str | VccError) -> None:
        """Take a bad entry out of use: reported once, moved aside, a miss from now on.

        Args:
            entry: the bad entry.
            reason: what is wrong; a `Damaged` error also sets its blob aside. Trouble that says
                nothing against the entry (a storage error, a later format) leaves it alone.

        Never raises.
        """
        if isinstance(reason, (StorageError, NewerFormat)):
            return
        digest = reason.digest if isinstance(reason, Damaged) else None
        bad = [(REFS, entry.base.digest.hex, entry.artifact), *([place(digest)] if digest else [])]
        self._set_aside(entry.artifact, str(reason), bad)

    def _refs(self, base: str) -> tuple[Entry, ...]:
        """The readable refs of one base, newest first; bad ones are quarantined."""
        with self._reading() as store:
            if store is None:
                return ()
            refs = read_refs(store, base, self._bad)
        for name, reason in refs.bad:
            self._set_aside(name, reason, [(REFS, base, name)])
        return refs.entries

    def _set_aside(self, artifact: str, reason: str, places: list[tuple[str, ...]]) -> None:
        if artifact in self._bad:
            return
        self._bad.add(artifact)
        try:
            with opened(self.root, create=False) as store:
                removed = _all_moved(store, places)
        except (OSError, IntegrityError):
            removed = False
        self.on_damage(Damage(artifact, reason, removed))

    def _blob(self, digest: Digest, size: int | None, limit: int = MAX_BLOB) -> bytes:
        with self._reading() as store:
            if store is None:
                raise MissingArtifact(f"the store at {self.root} is gone")
            return read_blob(store, digest, size, limit)

    @contextmanager
    def _reading(self) -> Iterator[Folder | None]:
        """The open `v1` folder; None where there is no store yet."""
        with storage("read the store at", str(self.root)), ExitStack() as stack:
            try:
                store = stack.enter_context(opened(self.root, create=False))
            except FileNotFoundError:
                store = None
            yield store


def _all_moved(store: Folder, places: list[tuple[str, ...]]) -> bool:
    done = True
    for *folders, name in places:
        with store.below(*folders) as folder:
            done = set_aside(store, folder, name) and done
    return done
