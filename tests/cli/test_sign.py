"""vcc sign: keys are made privately, and only what this account built is signed."""

from __future__ import annotations

import json

import pytest
from support.cli_reference import PAGE, differences, shapes
from support.stores import BLOBS, manifest_of
from support.trusting import COMMIT

from vcc.cache.errors import Exit
from vcc.cache.pulled import Mark, write_mark
from vcc.cache.root import opened
from vcc.cache.store import Store


@pytest.fixture(autouse=True)
def own_trust(tmp_path, monkeypatch):
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    monkeypatch.delenv("VCC_SIGNING_KEY", raising=False)
    monkeypatch.delenv("VCC_SIGNING_PASSPHRASE", raising=False)


@pytest.fixture
def key(vcc, tmp_path):
    assert vcc("sign", "--new-key", str(tmp_path / "k"), "--name", "main").code == 0
    return str(tmp_path / "k")


def publish(root, mode: str = "full"):
    return Store.open(root).publish(manifest_of(mode), BLOBS)


def mark_pulled(root, entry) -> None:
    with opened(root, create=True) as store, store.below("tmp", create=True) as own:
        write_mark(store, own, entry.artifact, Mark(url="s3://b/c", when=1, by_hand=True))


def test_a_new_key_is_told_where_it_is_and_what_comes_next(vcc, tmp_path):
    done = vcc("sign", "--new-key", str(tmp_path / "k"))
    assert done.code == 0
    assert f"hint: vcc trust add {tmp_path / 'k'}.pub trusts it" in done.err
    assert (tmp_path / "k").read_text().splitlines()[1] not in done.out + done.err
    again = vcc("sign", "--new-key", str(tmp_path / "k"))
    assert (again.code, again.out) == (Exit.STORAGE, "")
    assert "is there already" in again.err


def test_a_new_key_with_a_name_is_trusted_here(vcc, tmp_path):
    done = vcc("sign", "--new-key", str(tmp_path / "k"), "--name", "ci", "--json")
    assert done.json["trusted"] == "ci"
    (one,) = vcc("trust", "ls", "--json").json["keys"]
    assert (one["name"], one["key"]) == ("ci", done.json["key"])


def test_a_signed_artifact_loads_where_a_signature_is_asked_for(vcc, own_store, key):
    entry = publish(own_store)
    before = vcc("verify", entry.artifact, "--policy", "signed")
    assert before.code == Exit.INTEGRITY
    assert f"vcc sign {entry.artifact[:12]} --key FILE" in before.err
    done = vcc(
        *("sign", entry.artifact[:12], "--key", key, "--builder", "ci-main", "--epoch", "3"),
        *("--source-commit", COMMIT, "--claim", "ref=refs/heads/main", "--expires", "90d"),
        "--json",
    )
    assert done.code == 0, done.err
    (made,) = done.json["signed"]
    assert (made["artifact"], made["builder"], made["epoch"]) == (entry.artifact, "ci-main", 3)
    assert made["expires_at"] - made["signed_at"] == 90 * 86400
    assert made["claims"] == {"ref": "refs/heads/main"}
    loaded = Store.open(own_store).load(entry)
    assert loaded.trust.startswith("written by")
    assert vcc("verify", entry.artifact, "--policy", "signed").code != Exit.INTEGRITY


def test_all_signs_what_is_ours_and_says_what_is_left_out(vcc, own_store, key):
    ours, pulled = publish(own_store), publish(own_store, "none")
    mark_pulled(own_store, pulled)
    done = vcc("sign", "--all", "--key", key)
    assert done.code == 0
    assert f"signed: {ours.artifact[:12]}" in done.out
    assert "1 signed by key" in done.out
    assert f"note: artifact {pulled.artifact[:12]} was left out: it was pulled from" in done.err
    shown = vcc("sign", "--all", "--key", key, "--json").json
    assert [one["artifact"] for one in shown["left_out"]] == [pulled.artifact]


def test_what_is_named_and_not_ours_is_refused_unless_it_is_said(vcc, own_store, key):
    pulled = publish(own_store)
    mark_pulled(own_store, pulled)
    done = vcc("sign", pulled.artifact, "--key", key)
    assert done.code == Exit.USAGE
    assert "--foreign" in done.err
    assert vcc("sign", pulled.artifact, "--key", key, "--foreign").code == 0


def test_a_part_that_fails_is_partial_success(vcc, own_store, key):
    ours, pulled = publish(own_store), publish(own_store, "none")
    mark_pulled(own_store, pulled)
    done = vcc("sign", ours.artifact, pulled.artifact, "--key", key, "--json")
    assert done.code == Exit.PARTIAL
    assert [one["artifact"] for one in done.json["signed"]] == [ours.artifact]
    assert differences(shapes(PAGE.read_text())["sign"], done.json) == []
    (failed,) = done.json["failed"]
    assert failed["error"]["id"] == "USAGE"


def test_lower_stores_are_not_signed_in(vcc, own_store, key, tmp_path, monkeypatch):
    entry = publish(tmp_path / "lower")
    monkeypatch.setenv("VCC_LOWER_DIRS", str(tmp_path / "lower"))
    assert vcc("sign", entry.artifact, "--key", key).code == Exit.NEGATIVE
    assert not (tmp_path / "lower/v1/signatures").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "what to sign is not clear"),
        (("--all", "demo"), "what to sign is not clear"),
        (("--all", "--expires", "soon"), "--expires soon is not a duration"),
        (("--all", "--expires", "0d"), "--expires 0d is not a duration"),
        (("--all", "--claim", "ref"), "--claim ref is no claim"),
        (("--all", "--claim", "=x"), "is no claim"),
        (("--all", "--claim", "a=1", "--claim", "a=2"), "a claim is made twice"),
        (("--all", "--key", "/no/such/key"), "cannot read"),
    ],
)
def test_what_makes_no_sense_is_refused(vcc, own_store, key, words, what):
    publish(own_store)
    done = vcc("sign", "--key", key, *words)
    assert done.code in (Exit.USAGE, Exit.STORAGE)
    assert what in done.err


def test_a_commit_that_is_not_a_full_hash_is_refused_before_anything_is_signed(vcc, own_store, key):
    publish(own_store)
    done = vcc("sign", "--all", "--key", key, "--source-commit", "main")
    assert done.code == Exit.USAGE
    assert "source commit" in done.err
    assert not (own_store / "v1/signatures").exists()


def test_ci_signs_with_a_key_from_the_environment_and_shows_it_nowhere(
    vcc, own_store, key, monkeypatch
):
    publish(own_store)
    with open(key) as file:
        text = file.read()
    monkeypatch.setenv("VCC_SIGNING_KEY", text)
    done = vcc("sign", "--all", "--json")
    assert done.code == 0
    assert text.splitlines()[1] not in done.out + done.err
    monkeypatch.setenv("VCC_SIGNING_KEY", text.replace("MC4C", "XXXX"))
    broken = vcc("sign", "--all")
    assert broken.code == Exit.USAGE
    assert text.splitlines()[1][8:] not in broken.out + broken.err


def test_a_passphrase_protects_a_new_key(vcc, own_store, tmp_path):
    publish(own_store)
    (tmp_path / "word").write_text("open sesame\n")
    (tmp_path / "word").chmod(0o600)
    word = ("--passphrase-file", str(tmp_path / "word"))
    assert vcc("sign", "--new-key", str(tmp_path / "p"), *word).code == 0
    assert vcc("sign", "--all", "--key", str(tmp_path / "p")).code == Exit.USAGE
    assert vcc("sign", "--all", "--key", str(tmp_path / "p"), *word).code == 0


def test_errors_are_json_too(vcc, own_store):
    done = vcc("sign", "--all", "--json")
    assert json.loads(done.out)["error"]["hint"] == "vcc sign --new-key FILE makes one"
