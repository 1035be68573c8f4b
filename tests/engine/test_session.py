"""A session boots the newest artifact that answers, and builds only where it may."""

from __future__ import annotations

import sys
from dataclasses import replace

import msgspec
import pytest
from support.fake_engine import BLOBS, install, manifest_of

from vcc.cache.blob import Damaged
from vcc.cache.errors import IntegrityError, MissingArtifact, StorageError
from vcc.cache.store import Store
from vcc.engine.config.parse import parse_config, parse_model
from vcc.engine.config.target import Target
from vcc.engine.config.types import ParallelConfig
from vcc.engine.models.source import open_source
from vcc.engine.request import BuildRequest, settle
from vcc.engine.runtime.player.device import Device
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
    root = session().store.root
    assert error.value.hint == f"build it: vcc compile demo --cache-dir {root}"


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


def test_damage_found_by_who_knows_no_model_names_the_model(session, engine, monkeypatch):
    one = session(require_warm=True)
    one.store.publish(manifest_of(one.settled.request), BLOBS)

    def failing(loaded, *rest, **more):
        raise IntegrityError("golden differs", "", "rebuild it: vcc compile")

    monkeypatch.setattr(sys.modules["vcc.engine.runtime.boot"], "boot", failing)
    with pytest.raises(IntegrityError, match="golden differs") as error:
        open_session(one)
    assert "vcc compile demo" in error.value.hint


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


@pytest.mark.parametrize("bad", ["ref", "manifest", "blob"])
def test_damage_is_damage_wherever_it_is(session, engine, bad):
    """Warm starts tell a store that is losing bytes from one that has nothing yet."""
    one = session(require_warm=True)
    entry = one.store.publish(manifest_of(one.settled.request), BLOBS)
    v1 = one.store.root / "v1"
    blob = one.store.load(entry).manifest.blobs["piece/0.so"].sha256
    file = {
        "ref": v1 / "refs" / entry.base.digest.hex / entry.artifact,
        "manifest": v1 / "cas/sha256" / entry.artifact[:2] / entry.artifact,
        "blob": v1 / "cas/sha256" / blob[:2] / blob,
    }[bad]
    good = file.read_bytes()
    file.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    with pytest.raises(Damaged) as error:
        open_session(one)
    assert error.value.exit == 7
    assert error.value.why
    assert "vcc compile demo" in error.value.hint
    with pytest.raises(MissingArtifact):  # it was told once and set aside
        open_session(session(require_warm=True))


@pytest.mark.parametrize("gone", ["ref", "manifest", "blob"])
def test_what_is_gone_is_missing(session, engine, gone):
    one = session(require_warm=True)
    entry = one.store.publish(manifest_of(one.settled.request), BLOBS)
    names = {"ref": entry.artifact, "manifest": entry.artifact}
    blob = one.store.load(entry).manifest.blobs["piece/0.so"].sha256
    (file,) = (
        file
        for file in (one.store.root / "v1").rglob(names.get(gone, blob))
        if (file.parents[1].name == "refs") == (gone == "ref")
    )
    file.unlink()
    with pytest.raises(MissingArtifact) as error:
        open_session(one)
    assert error.value.exit == 1
    assert "vcc compile demo" in error.value.hint


def test_a_damaged_ref_beside_a_good_one_stops_nothing(session, engine):
    one = session(require_warm=True)
    older, newer = (
        one.store.publish(
            msgspec.structs.replace(manifest_of(one.settled.request), created=n), BLOBS
        )
        for n in (1, 2)
    )
    ref = one.store.root / "v1" / "refs" / newer.base.digest.hex / newer.artifact
    ref.write_bytes(b"torn")
    assert open_session(one).artifact == older.artifact


def test_a_build_after_damage_says_that_it_was_damage(session, engine):
    one = session()
    entry = one.store.publish(manifest_of(one.settled.request), BLOBS)
    (one.store.root / "v1" / "refs" / entry.base.digest.hex / entry.artifact).write_bytes(b"x")
    assert open_session(one).booted
    assert f"the ref of artifact {entry.artifact[:12]} is damaged" in one.notes[0]


@pytest.mark.parametrize(
    ("rules", "why", "hint"),
    [
        ({"arch": "sm_80"}, "it is for sm_80, a GPU is sm_90", "build it: {} --target sm_90"),
        (
            {"arch": "sm_90", "driver": "13010"},
            "it needs a driver of CUDA 13.1, this one has 13.0",
            "install a driver of CUDA 13.1 or later (this one is of CUDA 13.0), "
            "or build it with an older toolkit: {} --target sm_90",
        ),
    ],
)
def test_an_artifact_for_another_gpu_names_the_next_command(
    session, engine, monkeypatch, rules, why, hint
):
    gpu = Device(1, 0, "a GPU", "sm_90", 13000, 1 << 30)
    monkeypatch.setattr("vcc.engine.runtime.player.device.device_or_none", lambda: gpu)
    monkeypatch.setattr("vcc.engine.next_step.cache_root", lambda: session().store.root)
    one = session(require_warm=True)
    request = replace(one.settled.request, target=Target.parse("sm_90"))
    one = replace(one, settled=settle(request))
    manifest = manifest_of(request)
    one.store.publish(msgspec.structs.replace(manifest, host_rules=rules), BLOBS)
    with pytest.raises(MissingArtifact) as error:
        open_session(one)
    assert error.value.why.endswith(f"not for this host: {why}")
    assert error.value.hint == hint.format("vcc compile demo")


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
