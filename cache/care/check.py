"""Checking a whole store: every ref, manifest and blob, shelves, signatures and marks.

What is found was looked at again: a writer or a collection at work moves files for a moment, and
what it does is no damage. Nothing is changed here, see `repair.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vcc.cache.blob import compare, place, read_blob
from vcc.cache.canonical import MAX_BYTES
from vcc.cache.care.content import Content, read_content
from vcc.cache.care.finding import Checked, Finding, Place, still_missing
from vcc.cache.care.marks import names, shelf_indexes
from vcc.cache.care.place import existing
from vcc.cache.care.signed import bad_marks, bad_signatures
from vcc.cache.digest import Digest
from vcc.cache.errors import IntegrityError, MissingArtifact, VccError
from vcc.cache.folder import Folder, WrongSize
from vcc.cache.manifest import BlobRef, Manifest, NewerFormat
from vcc.cache.process import TMP
from vcc.cache.refs import MAX_REF, REFS, check_same
from vcc.cache.request import Entry, decode_ref
from vcc.cache.taken import read_taken
from vcc.cache.trouble import storage

T = TypeVar("T")
PAUSES_S = (0.0, 0.02, 0.1, 0.4, 1.0)
"""Seconds before each further look at something that is missing while others are at work."""
PATIENCE_S = 6.0
"""Seconds of all pauses of one check together."""
LAST_LOOK_S = 1.0
"""Seconds of the last of them at least."""


def check(root: Path) -> Checked:
    """Look at all of a store.

    Args:
        root: the root of the store; one that is not there is in order.

    Raises:
        StorageError, Unsafe: the store as a whole cannot be read.
    """
    checked = Checked()
    with storage("check the store at", str(root)), existing(root) as store:
        if store is not None:
            _Check(store, checked).run()
    return checked


@dataclass(frozen=True, slots=True)
class _Check:
    store: Folder
    checked: Checked
    waited: list[float] = field(default_factory=lambda: [0.0])

    def run(self) -> None:
        """Refs come first: what is published while blobs are read is not asked for."""
        entries = list(self._entries())
        indexes = shelf_indexes(self.store)
        content = read_content(self.store)
        self.checked.size = content.size
        self._count(refs=len(entries), blobs=len(content.good) + len(content.bad))
        users = self._users(entries, content)
        for digest, reason in content.bad.items():
            at, using = place(Digest(digest)), users.get(digest, [])
            refs = tuple(_ref(entry) for entry in using)
            found = Finding("blob", at, reason, _ids(using), (at, *refs))
            self.checked.findings.append(found)
        for index in indexes:
            self._index(index, content)
        self._count(indexes=len(indexes))
        self._others()
        self._take_back()

    def _count(self, **counts: int) -> None:
        self.checked.counts |= counts

    def _add(self, kind: str, at: Place, reason: object, *entries: Entry, why: object = "") -> None:
        refs = tuple(_ref(entry) for entry in entries)
        lacks = at if isinstance(why or reason, MissingArtifact) else ()
        finding = Finding(kind, at, str(reason), _ids(entries), (at, *refs), lacks)
        self.checked.findings.append(finding)

    def _entries(self) -> Iterator[Entry]:
        for base in names(self.store, REFS):
            for name in self._refs(base):
                try:
                    yield self._entry(base, name)
                except NewerFormat:
                    self.checked.newer += 1
                except FileNotFoundError:
                    continue  # removed under us
                except (IntegrityError, WrongSize, OSError) as error:
                    self._add("ref", (REFS, base, name), error)

    def _refs(self, base: str) -> list[str]:
        try:
            with self.store.below(REFS, base):
                return names(self.store, REFS, base)
        except FileNotFoundError:
            return []
        except (NotADirectoryError, IntegrityError) as error:
            self._add("ref", (REFS, base), error)
            return []

    def _entry(self, base: str, name: str) -> Entry:
        with self.store.below(REFS, base) as folder:
            return decode_ref(folder.read(name, limit=MAX_REF), base, name)

    def _users(self, entries: list[Entry], content: Content) -> dict[str, list[Entry]]:
        """Which artifacts use a blob; their manifests and what those lack are looked at."""
        users: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.artifact in content.bad:
                users.setdefault(entry.artifact, []).append(entry)
                continue
            manifest = self._manifest(entry)
            if manifest is None:
                continue
            for name, ref in manifest.blobs.items():
                users.setdefault(ref.sha256, []).append(entry)
                self._blob(entry, name, ref, content)
        self._count(manifests=len(entries))
        return users

    def _manifest(self, entry: Entry) -> Manifest | None:
        def read() -> Manifest:
            manifest = Manifest.decode(self._read(entry.id, None, MAX_BYTES))
            check_same(entry, Entry.of(manifest, entry.id))
            return manifest

        try:
            return self._settled(entry, read)
        except NewerFormat:
            self.checked.newer += 1
        except (VccError, WrongSize) as error:
            if self._still(entry):
                self._add("manifest", place(entry.id), error, entry)
        return None

    def _blob(self, entry: Entry, name: str, ref: BlobRef, content: Content) -> None:
        if content.good.get(ref.sha256) == ref.size or ref.sha256 in content.bad:
            return
        try:
            self._settled(entry, lambda: self._read(ref.digest, ref.size, ref.size))
        except (VccError, WrongSize) as error:
            if self._still(entry):
                self._add("blob", place(ref.digest), f"{name}: {error}", entry, why=error)

    def _read(self, digest: Digest, size: int | None, limit: int) -> bytes:
        """A blob, also one that a sweep has out of its place, or had when it was killed."""
        try:
            return read_blob(self.store, digest, size)
        except MissingArtifact:
            data = read_taken(self.store, place(digest), limit)
            if data is None:
                raise
        compare(data, digest)
        self.checked.taken += 1
        return data

    def _settled(self, entry: Entry, read: Callable[[], T]) -> T:
        """Read; what is missing gets time to come back while others are at work."""
        for pause in PAUSES_S:
            try:
                return read()
            except NewerFormat:
                raise
            except MissingArtifact:
                if self.waited[0] >= PATIENCE_S or not self._still(entry) or not self._busy():
                    break
                self.waited[0] += pause
                time.sleep(pause)
        return read()

    def _take_back(self) -> None:
        """What is in the hands of somebody is not named, as far as that can be waited for."""
        wait_s = max(LAST_LOOK_S, PATIENCE_S - self.waited[0])
        self.checked.findings, busy = still_missing(self.store, self.checked.findings, wait_s)
        if busy:
            what = ", ".join(f"tmp/{name}" for name in busy)
            self.checked.notes.append(f"what is missing may be in the hands of {what}")
        if self.checked.taken:
            text = f"{self.checked.taken} files were found in the hands of a collection"
            self.checked.notes.append(f"{text}; if it was killed, who misses one gives it back")

    def _busy(self) -> bool:
        """Whether somebody writes to the store now."""
        with suppress(FileNotFoundError), self.store.below(TMP) as tmp:
            return bool(tmp.names())
        return False

    def _still(self, entry: Entry) -> bool:
        """Whether the artifact was not removed meanwhile."""
        return entry.artifact in names(self.store, REFS, entry.base.digest.hex)

    def _index(self, index: Place, content: Content) -> None:
        from vcc.cache.care.shelves import index_faults

        for reason, at, lacks in index_faults(self.store, index, content):
            self.checked.findings.append(Finding("index", at, reason, (), (index,), lacks))

    def _others(self) -> None:
        signatures, marks = bad_signatures(self.store, self.checked.notes), bad_marks(self.store)
        for kind, found in (("signature", signatures), ("mark", marks)):
            for at, reason in found.bad:
                self.checked.findings.append(Finding(kind, at, reason, (), (at,)))
            self._count(**{f"{kind}s": found.count})


def _ref(entry: Entry) -> Place:
    return (REFS, entry.base.digest.hex, entry.artifact)


def _ids(entries: tuple[Entry, ...] | list[Entry]) -> tuple[str, ...]:
    return tuple(sorted({entry.artifact for entry in entries}))
