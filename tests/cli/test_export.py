"""vcc export and import: a pack from one store to another, by file and by pipe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.stores import BLOBS, assert_intact, flipped, manifest_of, quiet


@pytest.fixture
def entry(own_store):
    return quiet(own_store).publish(manifest_of(), BLOBS)


def test_a_pack_goes_from_store_to_store(vcc, entry, tmp_path):
    file = str(tmp_path / "a.vccpack")
    assert " exported " in vcc("export", entry.artifact, "-o", file).out
    done = vcc("import", file, "--cache-dir", str(tmp_path / "new"))
    assert done.code == 0
    assert " imported " in done.out
    assert_intact(tmp_path / "new", entry)
    assert " present " in vcc("import", file, "--cache-dir", str(tmp_path / "new")).out


def test_a_pack_goes_through_a_pipe(entry, tmp_path, own_store):
    vcc = [sys.executable, "-m", "vcc.cli.main"]
    environment = {**os.environ, "VCC_CACHE_DIR": str(own_store)}
    done = subprocess.run(
        [*vcc, "export", "--all", "-o", "-"], env=environment, capture_output=True, check=True
    )
    assert b"exported" in done.stderr
    new = {**os.environ, "VCC_CACHE_DIR": str(tmp_path / "new")}
    got = subprocess.run(
        [*vcc, "import", "-"], env=new, input=done.stdout, capture_output=True, check=True
    )
    assert b"imported" in got.stdout
    assert_intact(tmp_path / "new", entry)


def test_a_dry_run_verifies_and_stores_nothing(vcc, entry, tmp_path):
    file = tmp_path / "a.vccpack"
    vcc("export", entry.artifact, "-o", str(file))
    done = vcc("import", str(file), "--dry-run", "--cache-dir", str(tmp_path / "new"))
    assert " would import " in done.out
    assert not (tmp_path / "new").exists()
    file.write_bytes(flipped(file.read_bytes(), file.stat().st_size - 3, 1))
    done = vcc("import", str(file), "--dry-run", "--json")
    assert done.code == 7
    assert done.json["error"]["id"] == "PACK"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" * 100, b"vccpack 1\n"])
def test_a_file_that_is_no_pack_is_exit_7(vcc, tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    assert vcc("import", str(tmp_path / "x")).code == 7


def test_a_file_that_is_not_there_is_exit_5(vcc, tmp_path):
    done = vcc("import", str(tmp_path / "nothing"))
    assert done.code == 5
    assert "nothing" in done.err


def test_a_failed_export_leaves_the_older_file(vcc, entry, own_store, tmp_path):
    file = tmp_path / "a.vccpack"
    file.write_bytes(b"older")
    for blob in (own_store / "v1/cas").rglob("*"):
        if blob.is_file() and blob.stat().st_size == 300:
            blob.write_bytes(b"x" * 300)
    assert vcc("export", entry.artifact, "-o", str(file)).code == 7
    assert file.read_bytes() == b"older"
    assert [one.name for one in tmp_path.glob(".*")] == []


def test_an_export_to_a_place_that_is_not_there_is_exit_5(vcc, entry, tmp_path):
    assert vcc("export", "--all", "-o", str(tmp_path / "no" / "a")).code == 5


@pytest.mark.parametrize(
    "words",
    [("export", "--all"), ("export", "-o", "x"), ("export", "--all", "-o", "-", "--json")],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(vcc, entry, words):
    assert vcc(*words).code == 2


def test_under_policy_signed_an_unsigned_pack_is_refused(vcc, entry, tmp_path):
    file = str(tmp_path / "a.vccpack")
    vcc("export", "--all", "-o", file)
    done = vcc("import", file, "--policy", "signed", "--cache-dir", str(tmp_path / "new"))
    assert done.code == 7
    assert list(quiet(tmp_path / "new").entries()) == []


def shell(line, store, *words):
    """A line of sh in which "$@" is vcc with these words."""
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "vcc.cli.main", *words]
    environment = {**os.environ, "VCC_CACHE_DIR": str(store)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_reader_of_a_pack_that_leaves_ends_the_export_quietly(entry, own_store):
    big = quiet(own_store).publish(manifest_of("none"), {"program": bytes(1 << 20)})
    line = '{ "$@"; echo "code $?" >&2; } | head -c 10'
    done = shell(line, own_store, "export", big.artifact, "-o", "-")
    assert "code 1" in done.stderr
    assert "error" not in done.stderr


def test_a_closed_output_is_a_reader_that_has_left_and_a_closed_input_is_told(entry, own_store):
    done = shell('"$@" >&-', own_store, "export", "--all", "-o", "-")
    assert (done.returncode, "error" in done.stderr) == (1, False)
    done = shell('"$@" <&-', own_store, "import", "-")
    assert done.returncode == 5
    assert "cannot read standard input\n  why: it is closed" in done.stderr


def test_a_pack_that_is_not_there_is_told_without_a_word_of_the_store(vcc, own_store, tmp_path):
    done = vcc("import", str(tmp_path / "none"))
    assert done.code == 5
    assert "hint: Check where the pack lies" in done.err
