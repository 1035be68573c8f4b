"""Lower directories through the command line."""

from __future__ import annotations

import os

import pytest

from vcc.cache.store import Store

RUN = ("run", "demo", "--prompt", "It is", "--max-new-tokens", "2", "--json")


@pytest.fixture
def lower(vcc, engine, own_store, monkeypatch):
    """A lower directory that has the demo; the local store has nothing yet."""
    place = own_store.with_name("lower")
    assert vcc("compile", "demo", "--cache-dir", str(place)).code == 0
    monkeypatch.setenv("VCC_LOWER_DIRS", str(place))
    engine.builds.clear()
    return place


def state(root):
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in root.rglob("*")
    }


def test_a_run_is_warm_from_a_lower_directory_and_writes_nothing_there(
    vcc, engine, lower, own_store
):
    before = state(lower)
    done = vcc(*RUN, "--require-warm")
    assert done.code == 0, done.err
    assert done.json["counters"]["hits"] == 1
    assert engine.builds == []
    assert state(lower) == before
    assert not (own_store / "v1/cas").exists()


def test_listings_name_what_lies_below_too(vcc, lower):
    (entry,) = Store(lower).entries()
    assert entry.artifact[:12] in vcc("inspect", "cache").out
    assert vcc("inspect", "artifact", entry.artifact[:12], "--json").code == 0
    assert vcc("verify", "demo").code == 0


def test_damage_below_is_told_and_built_into_the_local_store(vcc, engine, lower, own_store, caplog):
    (entry,) = Store(lower).entries()
    path = lower / "v1/cas/sha256" / entry.artifact[:2] / entry.artifact
    path.write_bytes(b"x" + path.read_bytes()[1:])
    before = state(lower)
    done = vcc(*RUN)
    assert done.code == 0, done.err
    assert "is damaged" in done.err
    assert len(engine.builds) == 1
    assert state(lower) == before
    (mine,) = Store(own_store).entries()
    again = vcc(*RUN, "--require-warm")
    assert again.code == 0, again.err
    assert again.json["artifact"] == mine.artifact


@pytest.mark.root
def test_a_lower_directory_of_a_stranger_is_passed_over_with_the_reason(vcc, engine, lower):
    if os.geteuid() != 0:
        pytest.skip("needs root: files must belong to another account")
    for path in (lower, *lower.rglob("*")):
        os.chown(path, 65534, 65534)
    done = vcc(*RUN)
    assert done.code == 0
    assert "is not safe to use" in done.err
    assert len(engine.builds) == 1
    assert vcc(*RUN, "--strict").code == 7
