"""Private keys: made with mode 0600, read only from where others cannot, never printed."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vcc.cache.errors import StorageError, UsageError
from vcc.cache.trust import secretkey
from vcc.cache.trust.publickey import read_public_key
from vcc.cache.trust.secretkey import SecretKey, load_secret, write_new


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch):
    monkeypatch.delenv("VCC_SIGNING_KEY", raising=False)
    monkeypatch.delenv("VCC_SIGNING_PASSPHRASE", raising=False)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_a_new_key_is_private_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        key = write_new(tmp_path / "k")
    finally:
        os.umask(before)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "k.pub").stat().st_mode & 0o777 == 0o644
    assert load_secret(tmp_path / "k").public == key.public
    assert read_public_key(str(tmp_path / "k.pub")) == key.public


@pytest.mark.parametrize("full_at", [0, 1])
def test_a_full_disk_leaves_no_part_of_a_pair(tmp_path, monkeypatch, full_at):
    written = []

    def write(fd, data):
        if len(written) == full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(os.write(fd, data))

    with monkeypatch.context() as patch:
        patch.setattr(secretkey, "write_all", write)
        with pytest.raises(StorageError, match="write the key"):
            write_new(tmp_path / "k")
    assert list(tmp_path.iterdir()) == []
    write_new(tmp_path / "k")


@pytest.mark.parametrize("there", ["k", "k.pub"])
def test_a_key_is_never_written_over(tmp_path, there):
    (tmp_path / there).write_text("old")
    with pytest.raises(StorageError, match="is there already"):
        write_new(tmp_path / "k")
    assert (tmp_path / there).read_text() == "old"


def test_a_symlink_in_the_place_of_the_key_is_not_followed(tmp_path):
    (tmp_path / "k").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        write_new(tmp_path / "k")
    assert not (tmp_path / "elsewhere").exists()


def test_a_passphrase_is_needed_where_one_was_given(tmp_path, monkeypatch):
    key = write_new(tmp_path / "k", "open sesame")
    assert b"ENCRYPTED" in (tmp_path / "k").read_bytes()
    for wrong in ("", "other"):
        monkeypatch.setenv("VCC_SIGNING_PASSPHRASE", wrong)
        with pytest.raises(UsageError, match="cannot be read") as caught:
            load_secret(tmp_path / "k")
        assert "--passphrase-file" in caught.value.hint
    monkeypatch.setenv("VCC_SIGNING_PASSPHRASE", "open sesame")
    assert load_secret(tmp_path / "k").public == key.public
    (tmp_path / "word").write_text("open sesame\n")
    (tmp_path / "word").chmod(0o600)
    monkeypatch.setenv("VCC_SIGNING_PASSPHRASE", "other")
    assert load_secret(tmp_path / "k", tmp_path / "word").public == key.public


def test_the_environment_gives_a_key_to_ci(monkeypatch, key):
    monkeypatch.setenv("VCC_SIGNING_KEY", key.pem().decode())
    assert load_secret(None).public == key.public


def test_no_key_at_all_says_how_to_make_one():
    with pytest.raises(UsageError, match="no key to sign with") as caught:
        load_secret(None)
    assert "vcc sign --new-key" in caught.value.hint


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602])
def test_a_key_that_others_can_read_or_change_is_refused(tmp_path, mode):
    write_new(tmp_path / "k")
    (tmp_path / "k").chmod(mode)
    with pytest.raises(UsageError, match="is no secret") as caught:
        load_secret(tmp_path / "k")
    assert "chmod 600" in caught.value.hint


def test_a_key_of_another_algorithm_is_refused(tmp_path):
    text = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(UsageError, match="not ed25519"):
        SecretKey.parse(text, "the key")


@pytest.mark.parametrize("data", [b"", b"text", b"-----BEGIN PRIVATE KEY-----\n", b"x" * 20000])
def test_what_is_no_key_is_refused(tmp_path, data):
    (tmp_path / "k").write_bytes(data)
    (tmp_path / "k").chmod(0o600)
    with pytest.raises(UsageError):
        load_secret(tmp_path / "k")


def test_a_file_that_cannot_be_read_is_storage_trouble(tmp_path):
    with pytest.raises(StorageError, match="cannot read"):
        load_secret(tmp_path / "none")


def test_the_key_is_in_no_text_form(key):
    secret = key.pem().splitlines()[1].decode()
    raw = key._key.private_bytes_raw().hex()
    for text in (repr(key), str(key), f"{key}"):
        assert secret not in text
        assert raw not in text
        assert key.public in text


def test_openssl_reads_the_same_keys(tmp_path):
    """The formats are the common ones: PKCS#8 and SubjectPublicKeyInfo."""
    write_new(tmp_path / "k")
    try:
        done = subprocess.run(
            ["openssl", "pkey", "-in", str(tmp_path / "k"), "-pubout"],
            capture_output=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert done.stdout == (tmp_path / "k.pub").read_bytes()
