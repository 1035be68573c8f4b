"""The store against a model: whatever was done to it, a read is right or refused.

Care (pins, collection, pruning, checks, repair) and processes that end in the middle are steps like
publishing and damage. What was whole before a step of care is whole after it, unless the step says
that it went.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from support.crashes import ended_at
from support.stores import (
    BASE,
    blob_path,
    flipped,
    manifest_of,
    overwrite,
    quiet,
    ref_path,
    whole_artifacts,
)

from vcc.cache import roots
from vcc.cache.blob import Damaged
from vcc.cache.care.check import check
from vcc.cache.care.evict import Bounds
from vcc.cache.care.pins import pin_all, unpin_all
from vcc.cache.care.prune import items_of, prune
from vcc.cache.care.remove import remove
from vcc.cache.care.repair import repair
from vcc.cache.care.sweep import collect
from vcc.cache.errors import MissingArtifact
from vcc.cache.store import Store

SHELF = "/dev/shm" if Path("/dev/shm").is_dir() else None
CONTENTS = st.dictionaries(
    st.sampled_from(["program", "constant/a", "golden/0"]),
    st.sampled_from([b"", b"a", b"b" * 100, b"c" * 5000]),
    min_size=1,
)
MODES, TIMES = st.sampled_from("ab"), st.integers(1, 3)
WORK = {
    "collect": lambda root: collect(root, grace_s=0),
    "prune": lambda root: prune(root, Bounds(max_size=3000)),
    "repair": repair,
}


class StoreModel(RuleBasedStateMachine):
    """`expected` has the content of every entry that was ever published, `pins` what is pinned."""

    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="vcc-test-", dir=SHELF))
        self.root = self.folder / "store"
        self.store = quiet(self.root)
        self.expected: dict[str, dict[str, bytes]] = {}
        self.pins: set[str] = set()

    def teardown(self) -> None:
        roots.release()
        shutil.rmtree(self.folder)

    # Publishing, reading, damage

    @rule(target=entries, mode=MODES, created=TIMES, blobs=CONTENTS)
    def publish(self, mode, created, blobs):
        entry = self.store.publish(manifest_of(mode, created), blobs)
        self.expected[entry.artifact] = blobs
        assert entry in self.store.find(BASE, {"mode": mode})
        assert self.store.load(entry).read_all() == blobs
        return entry

    @rule(target=entries, mode=MODES, created=TIMES, blobs=CONTENTS, call=st.integers(1, 60))
    def publish_and_die(self, mode, created, blobs, call):
        manifest = manifest_of(mode, created)
        before = self.whole()
        ended_at(call, lambda: quiet(self.root).publish(manifest, blobs))
        entry = self.entry_of(manifest, blobs)
        self.expected[entry.artifact] = blobs
        assert self.whole() >= before
        return entry

    @rule(
        entry=entries, which=st.integers(0, 5), offset=st.integers(0, 10_000), bit=st.integers(0, 7)
    )
    def flip(self, entry, which, offset, bit):
        path = self.files(entry)[which % len(self.files(entry))]
        if path.exists() and path.stat().st_size:
            data = path.read_bytes()
            overwrite(path, flipped(data, offset % len(data), bit))

    @rule(entry=entries, which=st.integers(0, 5))
    def lose(self, entry, which):
        self.files(entry)[which % len(self.files(entry))].unlink(missing_ok=True)

    @rule()
    def start_again(self):
        roots.release()  # what a process that ends gives back
        self.store = quiet(self.root)

    @rule(entry=consumes(entries))
    def quarantine(self, entry):
        self.store.quarantine(entry, "asked for")
        assert entry not in self.store.find(BASE)

    @rule()
    def use_all(self):
        for entry in self.store.find(BASE):
            try:
                assert self.store.load(entry).read_all() == self.expected[entry.artifact]
            except MissingArtifact:
                continue
            except Damaged as error:
                self.store.quarantine(entry, error)

    # Care

    @rule(entry=entries)
    def pin(self, entry):
        try:
            pin_all(self.root, [entry.artifact])
            self.pins.add(entry.artifact)
        except MissingArtifact:
            assert entry.artifact not in self.stored()

    @rule(entry=entries)
    def unpin(self, entry):
        unpin_all(self.root, [entry.artifact])
        self.pins.discard(entry.artifact)

    @rule()
    def collect(self):
        before = self.whole()
        done = collect(self.root, grace_s=0)
        assert done.failed == []
        assert self.whole() == before
        again = collect(self.root, grace_s=0)
        assert [one for one in again.gone if one.kind != "empty folders"] == []

    @rule(size=st.sampled_from([1, 3000, 9000]))
    def prune(self, size):
        before = self.whole()
        done = prune(self.root, Bounds(max_size=size))
        gone = {item.artifact for item in done.removed.items}
        assert self.whole() == before - gone
        assert not gone & (self.pins | self.held())
        if self.stored() == self.whole() and not self.pins | self.held():
            assert self.named_size() <= size

    @rule(entry=entries)
    def remove(self, entry):
        before = self.whole()
        items = [item for item in items_of(self.root).items if item.artifact == entry.artifact]
        done = remove(self.root, items)
        gone = {item.artifact for item in done.items}
        assert self.whole() == before - gone
        assert bool(gone) == bool(items and entry.artifact not in self.pins | self.held())

    @rule(work=st.sampled_from(sorted(WORK)), call=st.integers(1, 40))
    def care_and_die(self, work, call):
        before, kept = self.whole(), self.pins | self.held()
        ended_at(call, lambda: WORK[work](self.root))
        lost = before - self.whole()
        assert not lost & kept
        assert not lost or work == "prune"
        assert not lost & self.stored()  # an artifact went as a whole, not in part

    @rule()
    def verify(self):
        told = {artifact for one in check(self.root).findings for artifact in one.artifacts}
        assert told == self.stored() - self.whole() & self.stored()

    @rule()
    def repair(self):
        before = self.whole()
        repair(self.root)
        assert check(self.root).findings == []
        assert self.whole() == before == self.stored()

    @invariant()
    def only_published_entries_are_found_newest_first(self):
        found = Store.open(self.root, on_damage=lambda damage: None).find(BASE)
        assert {entry.artifact for entry in found} <= self.expected.keys()
        assert [entry.created for entry in found] == sorted(
            (e.created for e in found), reverse=True
        )

    # What the model asks of the disk

    def whole(self) -> set[str]:
        """Artifacts whose every byte is right, read without telling the store."""
        found = whole_artifacts(self.root)
        assert all(found[artifact] == self.expected[artifact] for artifact in found)
        return set(found)

    def stored(self) -> set[str]:
        """Artifacts with a ref that can be read."""
        return {item.artifact for item in items_of(self.root).items}

    def held(self) -> set[str]:
        """Artifacts that this process uses."""
        live = self.root / "v1/roots/live"
        return {name.rpartition(".")[2] for name in os.listdir(live)} if live.exists() else set()

    def named_size(self) -> int:
        """Bytes of manifests and blobs of all stored artifacts, as the disk has them."""
        names = {digest for a in self.stored() for digest in self.digests(a)}
        paths = [blob_path(self.root, name) for name in names]
        return sum(path.stat().st_size for path in paths if path.exists())

    def entry_of(self, manifest, blobs):
        """The entry that publishing would give, made in a store of its own."""
        place = self.folder / "aside"
        entry = quiet(place).publish(manifest, blobs)
        shutil.rmtree(place)
        return entry

    def digests(self, artifact: str) -> list[str]:
        blobs = manifest_of().with_blobs(self.expected[artifact]).blobs.values()
        return [artifact, *(ref.sha256 for ref in blobs)]

    def files(self, entry) -> list[Path]:
        digests = self.digests(entry.artifact)
        return [ref_path(self.root, entry), *(blob_path(self.root, digest) for digest in digests)]


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
