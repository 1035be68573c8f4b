"""vcc trust: keys, remotes and revocations as a user changes and sees them."""

from __future__ import annotations

import os

import pytest
from support.cli_reference import PAGE, differences, shapes
from support.sources import ROOT
from support.stores import BLOBS, manifest_of
from support.trusting import RULES

from vcc.cache.errors import Exit
from vcc.cache.store import Store
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.secretkey import SecretKey

HEX = "ab" * 32


@pytest.fixture(autouse=True)
def trust(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    monkeypatch.delenv("VCC_POLICY", raising=False)
    return tmp_path / "trust"


def listed(vcc) -> dict:
    return vcc("trust", "ls", "--json").json


def test_nobody_is_trusted_at_first_and_looking_makes_nothing(vcc, trust, own_store):
    done = vcc("trust", "ls")
    assert done.code == 0
    assert "policy own: the default" in done.out
    assert "no trusted keys" in done.out
    assert not trust.exists()
    assert not own_store.exists()


def test_a_key_is_added_by_digits_and_by_file(vcc, tmp_path):
    done = vcc("trust", "add", HEX, "--name", "ci", "--builder", "ci-main", "--comment", "farm")
    assert done.code == 0
    assert "trusted: ci for ci-main" in done.out
    key = SecretKey.new()
    (tmp_path / "release.pub").write_bytes(key.public_pem())
    assert vcc("trust", "add", str(tmp_path / "release.pub"), "--json").json["name"] == "release"
    assert vcc("trust", "add", "cd" * 32, "--json").json["name"] == "key-cdcdcdcd"
    found = {one["name"]: one for one in listed(vcc)["keys"]}
    assert found["ci"]["builders"] == ["ci-main"]
    assert found["release"]["key"] == key.public
    assert "farm" in vcc("trust", "ls").out


def test_a_key_is_removed_by_name_and_by_digits(vcc):
    vcc("trust", "add", HEX, "--name", "ci")
    vcc("trust", "add", "cd" * 32, "--name", "other")
    assert vcc("trust", "rm", "ci").code == 0
    assert vcc("trust", "rm", "cdcdcdcd", "--json").json["removed"] is True
    assert listed(vcc)["keys"] == []
    done = vcc("trust", "rm", "ci")
    assert done.code == Exit.USAGE
    assert "vcc trust ls" in done.err


def test_a_revoked_key_stays_listed_as_such(vcc):
    vcc("trust", "add", HEX, "--name", "ci")
    assert vcc("trust", "revoke", "ci", "--why", "laptop lost").code == 0
    assert "laptop lost" in vcc("trust", "ls").out
    assert list(listed(vcc)["revoked"]["keys"]) == [HEX]
    assert vcc("trust", "revoke", "cd" * 32).code == 0  # a key that is not trusted here, too
    assert "key cdcdcdcdcdcdcdcd revoked on" in vcc("trust", "ls").out


def test_an_artifact_given_as_a_key_is_told_how_it_is_revoked(vcc):
    done = vcc("trust", "revoke", "ab" * 6)
    assert done.code == Exit.USAGE
    assert "--artifact ID revokes an artifact" in done.err


def test_a_revoked_artifact_loads_no_more(vcc, own_store):
    entry = Store.open(own_store).publish(manifest_of(), BLOBS)
    done = vcc("trust", "revoke", "--artifact", entry.artifact[:12], "--why", "wrong numbers")
    assert done.code == 0
    refused = vcc("verify", entry.artifact)
    assert refused.code == Exit.INTEGRITY
    assert "wrong numbers" in refused.err
    assert list(listed(vcc)["revoked"]["artifacts"]) == [entry.artifact]
    assert vcc("trust", "revoke", "--artifact", HEX, "--json").json["artifact"] == HEX


def test_a_remote_is_trusted_without_its_credentials(vcc, trust):
    url = "oci://me:canary@registry.example/cache"
    done = vcc("trust", "add", "--remote", url)
    assert done.code == 0
    assert listed(vcc)["remotes"] == ["oci://registry.example/cache"]
    assert all("canary" not in path.read_text() for path in trust.rglob("*.json"))
    assert "canary" not in done.out + done.err
    assert "nothing to change" in vcc("trust", "add", "--remote", url).out
    assert vcc("trust", "rm", "--remote", url, "--json").json["changed"] is True
    assert listed(vcc)["remotes"] == []


@pytest.mark.parametrize("command", ["add", "rm"])
def test_either_a_key_or_a_remote(vcc, command):
    for words in ((), (HEX, "--remote", "file:///a")):
        done = vcc("trust", command, *words)
        assert done.code == Exit.USAGE
        assert "give either a key or --remote" in done.err


def test_either_a_key_or_an_artifact(vcc):
    assert "give either a key or --artifact" in vcc("trust", "revoke").err


@pytest.mark.parametrize("key", ["01" + "00" * 31, "ab", "/no/such/file"])
def test_what_is_no_key_is_refused(vcc, key):
    assert vcc("trust", "add", key).code == Exit.USAGE
    assert listed(vcc)["keys"] == []


def test_a_url_that_is_none_is_refused(vcc):
    assert vcc("trust", "add", "--remote", "ftp://a/b").code == Exit.USAGE


def test_the_policy_in_force_and_why(vcc, own_store, monkeypatch):
    own_store.mkdir()
    own_store.chmod(0o770)
    found = listed(vcc)
    assert (found["policy"], found["because"]) == ("signed", "the group may write the store")
    monkeypatch.setenv("VCC_POLICY", "own")
    assert listed(vcc)["policy"] == "own"
    assert vcc("trust", "ls", "--policy", "prod", "--json").json["policy"] == "prod"
    assert vcc("trust", "ls", "--policy", "anyone").code == Exit.USAGE


def test_the_rules_of_prod_are_shown(vcc, trust, tmp_path):
    TrustPlace(trust, tmp_path / "none", True).write("prod.json", RULES)
    done = vcc("trust", "ls")
    assert "builders: ci-main" in done.out
    assert "claims: ref=refs/heads/main" in done.out
    assert "minimum_epoch: 5" in done.out
    vcc("trust", "add", HEX)
    vcc("trust", "revoke", HEX)
    found = listed(vcc)
    assert found["prod"][0]["minimum_epoch"] == 5
    assert differences(shapes(PAGE.read_text())["trust"], found) == []


def test_rules_of_prod_are_checked_before_they_are_taken(vcc, tmp_path):
    file = tmp_path / "rules.json"
    file.write_bytes((ROOT / "docs/examples/prod.json").read_bytes())
    done = vcc("trust", "prod", str(file), "--json")
    assert done.code == 0, done.err
    assert listed(vcc)["prod"] == [done.json["rules"]]
    for text in ("{", "{}", '{"builders":[]}', file.read_text().replace('"*"', '""')):
        file.write_text(text)
        refused = vcc("trust", "prod", str(file))
        assert refused.code == Exit.INTEGRITY
        assert listed(vcc)["prod"] == [done.json["rules"]]
    assert vcc("trust", "prod", str(tmp_path / "none")).code == Exit.STORAGE


def test_a_broken_trust_file_is_named(vcc, trust):
    vcc("trust", "add", HEX)
    (trust / "revocations.json").write_text("{")
    done = vcc("trust", "ls")
    assert done.code == Exit.INTEGRITY
    assert "revocations.json cannot be used" in done.err
    assert "hint: Mend it or move it away" in done.err


def test_a_trust_folder_that_others_can_write_is_refused(vcc, trust):
    vcc("trust", "add", HEX)
    trust.chmod(0o770)
    done = vcc("trust", "add", "cd" * 32)
    assert done.code == Exit.INTEGRITY
    assert f"chmod go-w {trust}" in done.err


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(spawn, trust, tmp_path):
    os.mkfifo(tmp_path / "key.pub")
    codes = {"add": Exit.USAGE, "prod": Exit.INTEGRITY}
    for command, code in codes.items():
        process = spawn("trust", command, str(tmp_path / "key.pub"))
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
    assert not [*trust.rglob("*.json")]
