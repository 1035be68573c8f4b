"""A session boots the newest artifact that answers, and builds only where it may."""

from __future__ import annotations

import sys

import msgspec
import pytest
from support.fake_engine import BLOBS, install, manifest_of

from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError
from vcc.cache.store import Store
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, settle
from vcc.engine.session import Session, find, open_session


@pytest.fixture
def engine(monkeypatch):
    return install(monkeypatch)


@pytest.fixture
def session(tmp_path):
    request = BuildRequest(
        source=open_source("demo", weights="none"),
        model=parse_model({"source": "demo"}),
        compilation=parse_config(None),
        parallel=ParallelConfig(),
        target=Target.parse("cpu"),
    )

    def make(**more):
        store = more.pop("store", Store.open(tmp_path, on_damage=lambda damage: None))
        return Session(settle(request), store, **more)

    return make


def test_a_miss_says_why(session):
    assert find(session()).entries == ()
    assert "empty" in find(session()).why
    with pytest.raises(MissingArtifact) as error:
        open_session(session(require_warm=True))
    assert "vcc compile demo" in error.value.hint


def test_a_build_counts_as_a_miss_and_is_charged_to_compile(session, engine):
    one = session()
    ready = open_session(one, [3])
    assert ready.artifact
    assert (one.counters["misses"], one.counters["hits"]) == (1, 0)
    assert "compile" in one.ledger.account()[0]
    two = session(require_warm=True)
    assert open_session(two).artifact == ready.artifact
    assert (two.counters["misses"], two.counters["hits"]) == (0, 1)
    assert len(engine.builds) == 1


def test_a_damaged_artifact_makes_way_for_an_older_one(session, engine, monkeypatch):
    one = session()
    request = one.settled.request
    older, newer = (msgspec.structs.replace(manifest_of(request), created=n) for n in (1, 2))
    good = one.store.publish(older, BLOBS)
    one.store.publish(newer, {**BLOBS, "piece/0.so": b"other"})
    boot = engine.boot

    def failing(loaded, *rest, **more):
        if loaded.read("piece/0.so") == b"other":
            raise IntegrityError("golden differs")
        return boot(loaded, *rest, **more)

    monkeypatch.setattr(sys.modules["vcc.engine.runtime.boot"], "boot", failing)
    assert open_session(one).artifact == good.artifact
    assert [entry.artifact for entry in one.store.entries()] == [good.artifact]
    assert "golden differs" in one.notes[0]
    assert engine.builds == []


def test_an_artifact_for_another_host_is_passed_over_with_the_reason(session, engine):
    one = session(require_warm=True)
    manifest = manifest_of(one.settled.request)
    fits = one.store.publish(msgspec.structs.replace(manifest, created=1), BLOBS)
    rules = {"machine": "pdp11"}
    one.store.publish(msgspec.structs.replace(manifest, host_rules=rules, created=2), BLOBS)
    assert [entry.artifact for entry in find(one).entries] == [fits.artifact]
    other = Store.open(one.store.root / "other")
    other.publish(msgspec.structs.replace(manifest, host_rules=rules), BLOBS)
    with pytest.raises(MissingArtifact, match="it is for pdp11"):
        open_session(session(store=other, require_warm=True))


def test_a_store_that_cannot_be_read_is_a_miss(session, engine):
    class Broken(Store):
        def find(self, *rest, **more):
            raise StorageError("cannot read", "EIO")

    one = session(store=Broken.open(session().store.root))
    assert open_session(one).booted
    assert "cannot read: EIO" in one.notes[0]


def test_what_cannot_be_stored_still_runs(session, engine, tmp_path):
    (tmp_path / "file").write_text("")
    one = session(store=Store.open(tmp_path / "file"))
    ready = open_session(one)
    assert ready.artifact is None
    assert any("not stored" in note for note in one.notes)
