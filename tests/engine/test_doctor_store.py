"""doctor on stores: place, locks, clock, lower stores, trust."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata

import pytest
from support.stores import BLOBS, manifest_of
from support.trusting import RULES

from vcc.cache.store import Store
from vcc.cache.trust.keyring import TrustedKey, add_key
from vcc.cache.trust.place import TrustPlace
from vcc.engine import doctor_store
from vcc.engine.doctor_store import store_findings
from vcc.engine.findings import Finding
from vcc.engine.probe import Probed

GOOD = Probed("ext4", 10**9, "", True, 0.0)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    for name in ("VCC_POLICY", "VCC_LOWER_DIRS"):
        monkeypatch.delenv(name, raising=False)
    return TrustPlace(tmp_path / "trust", tmp_path / "none", True)


def found(root) -> dict[str, Finding]:
    return {one.name: one for one in store_findings(Store.open(root))}


def test_a_store_that_is_not_there_yet_is_fine_and_is_not_made(tmp_path):
    lines = found(tmp_path / "store")
    assert {one.state for one in lines.values()} == {"ok"}
    assert "GB free on " in lines["store"].what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "name", "what"),
    [
        (
            {"locks": "a second process gets a lock that is held"},
            "store locks",
            "lock that is held",
        ),
        ({"skew_s": 3600.0}, "store clock", "3600 s ahead of this machine's"),
        ({"skew_s": -60.0}, "store clock", "60 s behind this machine's"),
    ],
)
def test_what_is_not_needed_is_absent_with_a_hint(tmp_path, monkeypatch, changes, name, what):
    monkeypatch.setattr(doctor_store, "probe", lambda at: replace(GOOD, **changes))
    one = found(tmp_path)[name]
    assert one.state == "absent"
    assert what in one.what
    assert one.hint


def test_no_hard_links_and_an_unknown_type_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_store, "probe", lambda at: replace(GOOD, kind="", links=False))
    assert "an unknown file system, without hard links" in found(tmp_path)["store"].what


def test_an_unsafe_root_fails_with_the_command_that_helps(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o777)
    one = found(root)["store"]
    assert one.state == "failed"
    assert f"chmod o-w {root}" in one.hint


def test_a_shared_root_wants_signatures_and_so_keys(tmp_path, place):
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o770)
    one = found(root)["trust"]
    assert one.state == "failed"
    assert "policy signed (the group may write the store)" in one.what
    assert "vcc trust add" in one.hint
    add_key(place, TrustedKey(key="ab" * 32, name="ci"))
    assert found(root)["trust"].what.endswith("1 trusted key, 0 trusted remotes")


def test_prod_wants_keys_rules_and_the_library(tmp_path, place, monkeypatch):
    monkeypatch.setenv("VCC_POLICY", "prod")
    add_key(place, TrustedKey(key="ab" * 32, name="ci"))
    assert "prod.json is not there" in found(tmp_path)["trust"].what
    place.write("prod.json", RULES)
    assert found(tmp_path)["trust"].state == "ok"

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor_store.metadata, "version", missing)
    assert found(tmp_path)["trust"].hint == "pip install 'cryptography>=43'"


def test_broken_trust_files_fail(tmp_path, place):
    place.write("remotes.json", {"remotes": 1})
    one = found(tmp_path)["trust"]
    assert one.state == "failed"
    assert "remotes.json cannot be used" in one.what


def test_lower_stores_are_counted_each_for_itself(tmp_path, monkeypatch):
    for name, modes in (("one", ("full",)), ("two", ("full", "none"))):
        for mode in modes:
            Store.open(tmp_path / name).publish(manifest_of(mode), BLOBS)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    names = ("one", "two", "open", "gone")
    monkeypatch.setenv("VCC_LOWER_DIRS", ":".join(str(tmp_path / name) for name in names))
    lines = [o for o in store_findings(Store.open(tmp_path / "local")) if o.name == "lower store"]
    assert [one.state for one in lines] == ["ok", "ok", "failed", "absent"]
    assert "one, 1 artifacts" in lines[0].what
    assert "two, 2 artifacts" in lines[1].what
    assert "chmod o-w" in lines[2].hint
    assert "is not there" in lines[3].what
