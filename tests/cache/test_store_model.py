"""The store against a model: published, damaged or lost, a read is right or refused."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from support.stores import BASE, blob_path, flipped, manifest_of, overwrite, quiet, ref_path

from vcc.cache.blob import Damaged
from vcc.cache.errors import MissingArtifact
from vcc.cache.store import Store

SHELF = "/dev/shm" if Path("/dev/shm").is_dir() else None
CONTENTS = st.dictionaries(
    st.sampled_from(["program", "constant/a", "golden/0"]),
    st.sampled_from([b"", b"a", b"b" * 100, b"c" * 5000]),
    min_size=1,
)


class StoreModel(RuleBasedStateMachine):
    """`expected` has the content of every entry that was ever published."""

    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="vcc-test-", dir=SHELF))
        self.root = self.folder / "store"
        self.store = quiet(self.root)
        self.expected: dict[str, dict[str, bytes]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(target=entries, mode=st.sampled_from("ab"), created=st.integers(1, 3), blobs=CONTENTS)
    def publish(self, mode, created, blobs):
        entry = self.store.publish(manifest_of(mode, created), blobs)
        self.expected[entry.artifact] = blobs
        assert entry in self.store.find(BASE, {"mode": mode})
        assert self.store.load(entry).read_all() == blobs
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

    @invariant()
    def only_published_entries_are_found_newest_first(self):
        found = Store.open(self.root, on_damage=lambda damage: None).find(BASE)
        assert {entry.artifact for entry in found} <= self.expected.keys()
        assert [entry.created for entry in found] == sorted(
            (e.created for e in found), reverse=True
        )

    def files(self, entry) -> list[Path]:
        blobs = manifest_of().with_blobs(self.expected[entry.artifact]).blobs.values()
        digests = [entry.artifact, *(ref.sha256 for ref in blobs)]
        return [ref_path(self.root, entry), *(blob_path(self.root, digest) for digest in digests)]


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
