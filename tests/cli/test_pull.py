"""vcc pull: from a remote, by id, by model, or all."""

from __future__ import annotations

import pytest
from support.stores import BLOBS, assert_intact, blob_path, manifest_of, quiet

from vcc.cache.digest import Digest


@pytest.fixture
def remote(tmp_path):
    return f"file://{tmp_path}/remote"


@pytest.fixture
def pushed(vcc, tmp_path, remote):
    """Two artifacts on the remote."""
    other = quiet(tmp_path / "other")
    entries = [other.publish(manifest_of(mode), BLOBS) for mode in ("full", "none")]
    assert vcc("push", "--all", "--to", remote, "--cache-dir", str(other.root)).code == 0
    return entries


def test_an_artifact_is_pulled_by_the_beginning_of_its_id(vcc, own_store, pushed, remote):
    done = vcc("pull", pushed[0].artifact[:12], "--from", remote)
    assert done.code == 0
    assert " pulled " in done.out
    assert "by hand" in done.out
    assert_intact(own_store, pushed[0])
    assert " present " in vcc("pull", pushed[0].artifact, "--from", remote).out


def test_all_artifacts_are_pulled(vcc, own_store, pushed, remote):
    done = vcc("pull", "--all", "--from", remote, "--json")
    assert {row["state"] for row in done.json["artifacts"]} == {"pulled"}
    for entry in pushed:
        assert_intact(own_store, entry)


def test_a_model_is_pulled_and_runs_warm(vcc, engine, remote, tmp_path, own_store):
    vcc("compile", "demo", "--cache-dir", str(tmp_path / "other"))
    vcc("push", "demo", "--to", remote, "--cache-dir", str(tmp_path / "other"))
    assert vcc("pull", "demo", "--from", remote).code == 0
    done = vcc("run", "demo", "--require-warm", "--prompt", "a", "--max-new-tokens", "1")
    assert done.code == 0


def test_a_dry_run_fetches_nothing(vcc, own_store, pushed, remote):
    done = vcc("pull", "--all", "--from", remote, "--dry-run")
    assert done.out.count("would pull") == 2
    assert not own_store.exists()


def test_what_the_remote_does_not_have_is_a_miss(vcc, pushed, remote):
    done = vcc("pull", "nothing", "--from", remote)
    assert done.code == 1
    assert "not on file://" in done.err
    assert vcc("pull", "0" * 64, "--from", remote).code == 1


def test_an_id_that_is_not_one_artifacts_is_a_usage_error(vcc, pushed, remote, monkeypatch):
    monkeypatch.setattr("vcc.cli.stored._begins", _several)
    assert vcc("pull", "abcd", "--from", remote).code == 2


def _several(entries, name, digits):
    from vcc.cache.errors import UsageError

    raise UsageError("several")


def test_one_of_several_that_fails_is_exit_10(vcc, own_store, pushed, remote, tmp_path):
    blob_path(tmp_path / "remote", pushed[0].id).write_bytes(b"spoilt")
    done = vcc("pull", "--all", "--from", remote, "--json")
    assert done.code == 10
    states = {row["artifact"]: row["state"] for row in done.json["artifacts"]}
    assert states == {pushed[0].artifact: "failed", pushed[1].artifact: "pulled"}
    failed = next(row for row in done.json["artifacts"] if row["state"] == "failed")
    assert failed["error"]["id"] == "REMOTE"
    assert_intact(own_store, pushed[1])


def test_all_that_fail_have_the_code_of_the_remote(vcc, own_store, pushed, remote, tmp_path):
    shared = blob_path(tmp_path / "remote", Digest.of(BLOBS["program"]))
    shared.write_bytes(b"spoilt bytes")
    assert vcc("pull", "--all", "--from", remote).code == 4
    done = vcc("pull", pushed[0].artifact, "--from", remote)
    assert done.code == 4
    assert "not what its digest says" in done.err
    assert list(quiet(own_store).entries()) == []


def test_under_policy_signed_an_unsigned_artifact_is_refused(vcc, own_store, pushed, remote):
    done = vcc("pull", pushed[0].artifact, "--from", remote, "--policy", "signed")
    assert done.code == 7
    assert "not signed" in done.err
    assert list(quiet(own_store).entries()) == []


def test_a_bad_ref_on_the_remote_is_said(vcc, pushed, remote, tmp_path):
    ref = tmp_path / "remote/v1/refs" / pushed[0].base.digest.hex / pushed[0].artifact
    ref.write_bytes(b"spoilt")
    done = vcc("pull", "--all", "--from", remote)
    assert done.code == 10
    assert "is bad" in done.err
    assert len(vcc("pull", "--all", "--from", remote, "--json").json["bad"]) == 1
    assert vcc("pull", pushed[1].artifact[:12], "--from", remote).code == 0
    for other in (tmp_path / "remote/v1/refs").glob("*/*"):
        other.write_bytes(b"spoilt")
    assert vcc("pull", "--all", "--from", remote).code == 4


def test_a_title_from_elsewhere_cannot_steer_the_terminal(vcc, tmp_path, remote):
    other = quiet(tmp_path / "other")
    other.publish(manifest_of(title="\x1b]0;owned\x07\x9b2J"), BLOBS)
    vcc("push", "--all", "--to", remote, "--cache-dir", str(other.root))
    done = vcc("pull", "--all", "--from", remote)
    assert done.code == 0
    assert "?]0;owned??2J" in done.out
    assert done.out.replace("\n", "").isprintable()


def test_offline_a_network_is_not_asked(vcc, monkeypatch):
    monkeypatch.setenv("VCC_OFFLINE", "1")
    done = vcc("pull", "--all", "--from", "s3://bucket/x", "--json")
    assert done.code == 4
    assert done.json["error"]["id"] == "OFFLINE"


@pytest.mark.parametrize("url", ["s3://bucket/x", "oci://127.0.0.1:1/a/b"])
def test_a_client_that_is_not_installed_is_named(vcc, monkeypatch, url):
    import sys

    ours = tuple(f"vcc.cache.remote.{name}" for name in ("bucket", "clients", "registry"))
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("obstore", "obstore.store", "obstore.exceptions", "oras", "oras.provider"):
        monkeypatch.setitem(sys.modules, name, None)
    done = vcc("pull", "--all", "--from", url)
    assert done.code == 2
    assert "pip install 'obstore>=0.11' 'oras>=" in done.err


def test_a_run_pulls_what_it_misses_from_a_trusted_remote(
    vcc, engine, remote, tmp_path, monkeypatch
):
    monkeypatch.setenv("VCC_TRUST_DIR", str(tmp_path / "trust"))
    vcc("compile", "demo", "--cache-dir", str(tmp_path / "other"))
    vcc("push", "demo", "--to", remote, "--cache-dir", str(tmp_path / "other"))
    words = ("run", "demo", "--require-warm", "--prompt", "a", "--max-new-tokens", "1")
    refused = vcc(*words, "--remote", remote)
    assert refused.code != 0
    assert "not a trusted remote" in refused.err
    assert vcc("trust", "add", "--remote", remote).code == 0
    done = vcc(*words, "--remote", remote)
    assert done.code == 0, done.err
    assert "pulled from file://" in done.err
    assert vcc(*words).code == 0


def test_a_dry_run_of_compile_asks_no_remote(vcc, engine, remote, tmp_path, own_store):
    vcc("compile", "demo", "--cache-dir", str(tmp_path / "other"))
    vcc("push", "demo", "--to", remote, "--cache-dir", str(tmp_path / "other"))
    vcc("compile", "demo", "--dry-run")
    assert not own_store.exists()


def test_a_run_that_misses_asks_the_remote_once(vcc, engine, remote, tmp_path, monkeypatch):
    from vcc.cache.remote.file import FileRemote

    (tmp_path / "remote").mkdir()
    asked, paths = [], FileRemote.paths
    monkeypatch.setattr(
        FileRemote, "paths", lambda self, prefix: (asked.append(prefix), paths(self, prefix))[1]
    )
    words = ("run", "demo", "--prompt", "a", "--max-new-tokens", "1", "--remote", remote)
    assert vcc(*words).code == 0
    assert len(asked) == 1
