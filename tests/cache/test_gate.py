"""The gate is asked before any blob is read; the remote only when no tier has an answer."""

from __future__ import annotations

import os

import pytest
from support.stores import BASE, BLOBS, Told, blob_path, flipped, manifest_of, overwrite

from vcc.cache.blob import Damaged
from vcc.cache.errors import StorageError
from vcc.cache.gate import Untrusted
from vcc.cache.store import Store


class Refusing:
    """A gate that admits what lies in the named tiers."""

    fast_check, fails_closed = True, False

    def __init__(self, *names: str) -> None:
        self.names, self.asked = names, []

    def admit(self, store, tier, entry, manifest, owner):
        self.asked.append((tier.name, entry.artifact, len(manifest), owner))
        if tier.name in self.names:
            return "listed"
        raise Untrusted(f"artifact {entry.id.short} is not trusted")


def test_the_gate_is_asked_before_any_blob_is_read(local, monkeypatch):
    entry = Store(local).publish(manifest_of(), BLOBS)
    gate = Refusing()
    told = Told(local, gate=gate)
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: opened.append(path) or real(path, *a, **k)
    )
    with pytest.raises(Untrusted):
        told.store.load(entry)
    monkeypatch.undo()
    assert [name for name in opened if len(str(name)) == 64] == [entry.artifact]
    assert gate.asked == [("local", entry.artifact, gate.asked[0][2], os.geteuid())]
    told.store.quarantine(entry, Untrusted("no"))
    assert told.store.find(BASE) == (entry,)
    assert told.damages == []


def test_what_one_tier_may_not_give_another_may(local, lower):
    entry = Store(local).publish(manifest_of(), BLOBS)
    Store(lower).publish(manifest_of(), BLOBS)
    told = Told(local, lower, gate=Refusing("lower 1"))
    loaded = told.store.load(entry)
    assert (loaded.tier, loaded.trust) == ("lower 1", "listed")
    assert (told.damages, told.troubles) == ([], [])


def test_a_damaged_manifest_is_found_before_the_gate_is_asked(local):
    entry = Store(local).publish(manifest_of(), BLOBS)
    path = blob_path(local, entry.artifact)
    overwrite(path, flipped(path.read_bytes(), 5, 2))
    gate = Refusing("local")
    with pytest.raises(Damaged):
        Told(local, gate=gate).store.load(entry)
    assert gate.asked == []


# The remote


class Remote:
    """A remote that publishes into the local store, or fails."""

    url = "test://"

    def __init__(self, answer) -> None:
        self.answer, self.asked = answer, 0

    def bring(self, root, base, usable):
        self.asked += 1
        return self.answer(root, base, usable)


def test_the_remote_is_asked_only_when_no_tier_has_a_usable_entry(local, lower):
    def answer(root, base, usable):
        entry = Store(root).publish(manifest_of("none"), BLOBS)
        assert usable(entry)
        return True

    remote = Remote(answer)
    Store(lower).publish(manifest_of("full"), BLOBS)
    store = Told(local, lower, remote=remote).store
    assert len(store.find(BASE, {"mode": "full"})) == 1
    assert remote.asked == 0
    (entry,) = store.find(BASE, {"mode": "none"})
    assert (remote.asked, store.load(entry).tier) == (1, "local")


@pytest.mark.parametrize("strict", [False, True])
def test_a_remote_that_fails_costs_a_build_or_is_fatal_when_strict(local, strict):
    def answer(root, base, usable):
        raise StorageError("no answer", "timeout")

    told = Told(local, remote=Remote(answer), strict=strict)
    if strict:
        with pytest.raises(StorageError, match="timeout"):
            told.store.find(BASE)
    else:
        assert [told.store.find(BASE) for _ in range(2)] == [(), ()]
        assert [str(error) for error in told.troubles] == ["no answer: timeout"]
