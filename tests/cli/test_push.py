"""vcc push: to a remote, by name or all, and what is said of it."""

from __future__ import annotations

import msgspec
import pytest
from support.stores import BLOBS, manifest_of, quiet

from vcc.cache.remote.file import FileRemote


@pytest.fixture
def remote(tmp_path):
    return f"file://{tmp_path}/remote"


def test_a_model_is_pushed_and_then_present(vcc, engine, remote):
    vcc("compile", "demo")
    done = vcc("push", "demo", "--to", remote)
    assert done.code == 0
    assert " pushed " in done.out
    assert " present " in vcc("push", "--all", "--to", remote).out


def test_blobs_that_are_there_are_summed_up_in_one_line(vcc, own_store, remote):
    for number in range(2):
        quiet(own_store).publish(manifest_of(str(number)), BLOBS)
    blobs = len(set(BLOBS.values()))
    first = vcc("push", "--all", "--to", remote).err.splitlines()
    assert [line for line in first if line.endswith(" done")] == first[:blobs]
    assert first[blobs] == f"push: {blobs} blobs were there already"
    again = vcc("push", "--all", "--to", remote).err.splitlines()
    assert again[:-1] == [f"push: {2 * blobs} blobs were there already"]
    assert vcc("push", "--all", "--to", remote, "--json").err == ""


def test_the_remote_of_the_environment_is_the_default(vcc, engine, remote, monkeypatch):
    vcc("compile", "demo")
    monkeypatch.setenv("VCC_REMOTE", remote)
    done = vcc("push", "demo", "--json")
    assert done.json["place"] == remote
    (row,) = done.json["artifacts"]
    assert (row["state"], row["error"]) == ("pushed", {})
    assert row["bytes"] > 0


def test_a_dry_run_sends_nothing(vcc, engine, remote, tmp_path):
    vcc("compile", "demo")
    done = vcc("push", "demo", "--to", remote, "--dry-run")
    assert " would push " in done.out
    assert not (tmp_path / "remote").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("push",), "name artifacts, or give --all"),
        (("push", "demo", "--all"), "not both"),
        (("push", "demo"), "no remote"),
        (("push", "demo", "--to", "http://x"), "not the URL of a remote"),
        (("pull", "--all"), "no remote"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(vcc, engine, words, text):
    vcc("compile", "demo")
    done = vcc(*words)
    assert done.code == 2
    assert text in done.err


def test_what_is_not_stored_is_a_miss(vcc, engine, remote):
    assert vcc("push", "demo", "--to", remote).code == 1


def test_a_remote_that_refuses_is_exit_4(vcc, engine, tmp_path):
    vcc("compile", "demo")
    (tmp_path / "file").write_text("")
    done = vcc("push", "demo", "--to", f"file://{tmp_path}/file/x", "--json")
    assert done.code == 4
    assert done.json["error"]["id"].startswith("REMOTE")


def test_one_of_several_that_fails_is_exit_10(vcc, own_store, remote, monkeypatch):
    store = quiet(own_store)
    bad = store.publish(manifest_of(), BLOBS)
    store.publish(manifest_of("none"), BLOBS)
    put = FileRemote.put

    def refuse(self, path, data, **named):
        if path.endswith(bad.artifact) and "refs" in path:
            from vcc.cache.errors import RemoteError

            raise RemoteError("no room for it")
        return put(self, path, data, **named)

    monkeypatch.setattr(FileRemote, "put", refuse)
    done = vcc("push", "--all", "--to", remote, "--json")
    assert done.code == 10
    states = {row["artifact"]: row["state"] for row in done.json["artifacts"]}
    assert states.pop(bad.artifact) == "failed"
    assert list(states.values()) == ["pushed"]
    text = vcc("push", "--all", "--to", remote)
    assert text.code == 10
    assert "no room for it" in text.out


@pytest.fixture
def vendor(own_store):
    """An artifact with kernels of a vendor's library."""
    info = {"vendor_cubins": [{"digest": "ab" * 32, "library": "cuBLAS"}]}
    return quiet(own_store).publish(manifest_of(info=info), BLOBS)


class Public(FileRemote):
    """A directory that says it is a registry of the open internet."""

    public = True
    is_registry = True


@pytest.fixture
def public(monkeypatch):
    """Directories are public registries now."""
    monkeypatch.setattr("vcc.cache.remote.file.FileRemote", Public)
    return Public


def test_a_vendors_kernels_do_not_go_to_a_public_registry_by_themselves(
    vcc, vendor, remote, public, tmp_path
):
    done = vcc("push", vendor.artifact, "--to", remote)
    assert done.code == 2
    assert "kernels of cuBLAS" in done.err
    assert "--allow-vendor" in done.err
    assert not (tmp_path / "remote").exists()


def test_they_go_there_when_that_is_allowed_and_it_is_said(vcc, vendor, remote, public):
    done = vcc("push", vendor.artifact, "--to", remote, "--allow-vendor")
    assert done.code == 0
    assert "note: " in done.err
    assert "kernels of cuBLAS" in done.err


def test_a_public_bucket_is_only_said(vcc, vendor, remote, public, monkeypatch):
    monkeypatch.setattr(public, "is_registry", False)
    done = vcc("push", vendor.artifact, "--to", remote)
    assert done.code == 0
    assert "kernels of cuBLAS" in done.err


def test_a_place_of_ones_own_is_not_spoken_of(vcc, vendor, remote):
    done = vcc("push", vendor.artifact, "--to", remote)
    assert done.code == 0
    assert "cuBLAS" not in done.err


def test_wrong_bytes_on_the_remote_are_replaced_when_they_are_read_back(
    vcc, own_store, remote, tmp_path
):
    entry = quiet(own_store).publish(manifest_of(), BLOBS)
    vcc("push", "--all", "--to", remote)
    blob = next(
        p for p in (tmp_path / "remote").rglob("*") if p.is_file() and p.stat().st_size == 1024
    )
    blob.write_bytes(b"x" * 1024)
    assert " present " in vcc("push", entry.artifact, "--to", remote).out
    done = vcc("push", entry.artifact, "--to", remote, "--verify-remote")
    assert "1 replaced" in done.out
    assert blob.read_bytes() == BLOBS["constant/inv_freq"]


def test_rows_of_json_have_the_shape_of_the_page(vcc, own_store, remote):
    from support.cli_reference import PAGE, differences, shapes

    entry = quiet(own_store).publish(manifest_of(), BLOBS)
    assert msgspec.to_builtins(entry)["title"] == "demo"
    done = vcc("push", "--all", "--to", remote, "--json")
    assert differences(shapes(PAGE.read_text())["carried"], done.json) == []
