"""Trouble with a store: a note and a result by default, the exit code where --strict asks for it.

Rows 17, 20, 86 and guarantee G4, through the command line and with a fake compiler.
"""

from __future__ import annotations

import errno
import os

import pytest

from vcc.cache.store import Store

RUN = ("run", "demo", "--prompt", "It is", "--max-new-tokens", "2", "--json")


@pytest.fixture
def broken(own_store, monkeypatch):
    """Make the store unusable in a way; returns the error that a user must see."""

    def full():
        def no_room(fd, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("vcc.cache.folder.os.write", no_room)
        return "STORAGE_FULL", "No space left"

    def no_folder():
        own_store.write_text("a file")
        return "STORAGE", "Not a directory"

    def lower_is_gone():
        monkeypatch.setenv("VCC_LOWER_DIRS", str(own_store.with_name("nowhere")))
        return "STORAGE", "is not there"

    def lower_is_unsafe():
        place = own_store.with_name("open")
        (place / "v1").mkdir(parents=True)
        place.chmod(0o777)
        monkeypatch.setenv("VCC_LOWER_DIRS", str(place))
        return "UNSAFE_ROOT", "every account can change it"

    def remote_is_gone():
        monkeypatch.setenv("VCC_REMOTE", (own_store.with_name("no-remote") / "x").as_uri())
        return "REMOTE", "no-remote"

    ways = (full, no_folder, lower_is_gone, lower_is_unsafe, remote_is_gone)
    return {way.__name__: way for way in ways}


WAYS = ("full", "no_folder", "lower_is_gone", "lower_is_unsafe")
CODES = {"STORAGE": 5, "STORAGE_FULL": 5, "UNSAFE_ROOT": 7, "REMOTE": 4}


@pytest.mark.parametrize("way", WAYS)
def test_by_default_a_run_goes_on_and_says_why(vcc, engine, broken, way):
    _, text = broken[way]()
    done = vcc(*RUN)
    assert done.code == 0, done.err
    assert text in done.err
    assert len(done.json["prompts"][0]["token_ids"]) == 2
    assert len(engine.builds) == 1


@pytest.mark.parametrize("said", ["--strict", "VCC_STRICT"])
@pytest.mark.parametrize("way", WAYS)
def test_strict_makes_it_an_error_with_its_code(vcc, engine, broken, monkeypatch, way, said):
    name, text = broken[way]()
    if said == "VCC_STRICT":
        monkeypatch.setenv("VCC_STRICT", "1")
    done = vcc(*RUN, *(["--strict"] if said == "--strict" else []))
    error = done.json["error"]
    assert (done.code, error["id"]) == (CODES[name], name)
    assert text in f"{error['what']}: {error['why']}"
    assert error["hint"]
    assert engine.boots == []


def test_a_full_store_fails_compile_since_storing_is_what_it_is_for(vcc, engine, broken):
    broken["full"]()
    done = vcc("compile", "demo", "--json")
    assert (done.code, done.json["error"]["id"]) == (5, "STORAGE")
    done = vcc("compile", "demo", "--strict", "--json")
    assert (done.code, done.json["error"]["id"]) == (5, "STORAGE_FULL")


def test_damage_is_rebuilt_under_strict_too(vcc, engine, own_store):
    """Strict is about places that fail; bad bytes are found, set aside and made again."""
    assert vcc("compile", "demo").code == 0
    (entry,) = Store.open(own_store).entries()
    path = own_store / "v1/cas/sha256" / entry.artifact[:2] / entry.artifact
    path.write_bytes(path.read_bytes()[:-1])
    done = vcc(*RUN, "--strict")
    assert done.code == 0, done.err
    assert len(engine.builds) == 2


def test_prod_never_builds_and_says_what_it_would_need(vcc, engine, own_store):
    """Policy prod fails closed: an unsigned artifact is no artifact, and nothing is compiled."""
    assert vcc("compile", "demo").code == 0
    done = vcc(*RUN, "--policy", "prod")
    assert (done.code, done.json["error"]["id"]) == (7, "UNTRUSTED")
    assert done.json["error"]["hint"]
    (entry,) = Store.open(own_store).entries()
    (own_store / "v1/refs" / entry.base.digest.hex / entry.artifact).unlink()
    done = vcc(*RUN, "--policy", "prod")
    assert (done.code, done.json["error"]["id"]) == (1, "MISSING_ARTIFACT")
    assert len(engine.builds) == 1
    assert engine.boots == []


def test_a_policy_that_is_not_there_is_a_usage_error(vcc, engine):
    done = vcc(*RUN, "--policy", "prd")
    assert (done.code, done.json["error"]["id"]) == (2, "USAGE")
    assert "prod" in done.json["error"]["hint"]
