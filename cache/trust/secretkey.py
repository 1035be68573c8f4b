"""Private keys: ed25519 in PKCS#8 PEM, open (mode 0600) or under a passphrase. Never printed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcc.cache.errors import StorageError, UsageError
from vcc.cache.folder import FILE_MODE, NEW_FLAGS, write_all
from vcc.cache.named_files import open_named
from vcc.cache.settings import signing_secrets
from vcc.cache.trouble import storage
from vcc.cache.trust.publickey import MAX_FILE, crypto

_READABLE_BY_ALL = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A private key; its text form shows the public key only."""

    public: str
    _key: Any = field(repr=False, compare=False)

    @classmethod
    def new(cls) -> SecretKey:
        """A key made from the system's randomness; raises MissingExtra."""
        return cls._of(crypto("asymmetric.ed25519").Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, data: bytes, name: str, word: str = "") -> SecretKey:
        """The key of a PEM text.

        Raises:
            UsageError: it is none, of another algorithm, or the passphrase does not fit.
            MissingExtra: cryptography is not installed.
        """
        serialization, ed25519 = crypto("serialization"), crypto("asymmetric.ed25519")
        try:
            key = serialization.load_pem_private_key(data, _encoded(word) or None)
        except Exception as error:  # ValueError, TypeError and UnsupportedAlgorithm of the library
            raise UsageError(
                f"{name} cannot be read as a private key",
                str(error)[:300],
                "PKCS#8 PEM is expected; its passphrase comes from --passphrase-file or "
                "VCC_SIGNING_PASSPHRASE",
            ) from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            kind = type(key).__name__.removesuffix("PrivateKey")
            raise UsageError(f"{name} is a key of another kind", f"{kind}, not ed25519")
        return cls._of(key)

    @classmethod
    def _of(cls, key: Any) -> SecretKey:
        return cls(key.public_key().public_bytes_raw().hex(), key)

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of the signature over `data`."""
        signature: bytes = self._key.sign(data)
        return signature

    def pem(self, word: str = "") -> bytes:
        """The key as PKCS#8 PEM, encrypted if there is a passphrase."""
        serialization = crypto("serialization")
        way = (
            serialization.BestAvailableEncryption(_encoded(word))
            if word
            else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        text: bytes = self._key.private_bytes(serialization.Encoding.PEM, form, way)
        return text

    def public_pem(self) -> bytes:
        """The public key as PEM, the form that other tools read."""
        serialization = crypto("serialization")
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        text: bytes = self._key.public_key().public_bytes(serialization.Encoding.PEM, form)
        return text


def write_new(file: Path, word: str = "") -> SecretKey:
    """Make a key: `file` (mode 0600) and `file`.pub; nothing that is there is replaced.

    Args:
        file: of the private key.
        word: its passphrase; empty for none.

    Raises:
        StorageError: one of them is there, or cannot be written.
    """
    key, public = SecretKey.new(), file.with_name(file.name + ".pub")
    if os.path.lexists(public):
        raise StorageError(f"{public} is there already", "a key is never written over", _OTHER)
    _write(file, key.pem(word), FILE_MODE)
    with _gone_on_failure(file):
        _write(public, key.public_pem(), 0o644)
    return key


def _encoded(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


_OTHER = "Give another name to --new-key, or move the old key away"


def _write(file: Path, data: bytes, mode: int) -> None:
    with storage("write the key", str(file)):
        try:
            fd = os.open(file, NEW_FLAGS, FILE_MODE)
        except FileExistsError as error:
            raise StorageError(
                f"{file} is there already", "a key is never written over", _OTHER
            ) from error
        try:
            with _gone_on_failure(file):
                os.fchmod(fd, mode)
                write_all(fd, data)
                os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _gone_on_failure(file: Path) -> Iterator[None]:
    """A key of which a part is there would be in the way of the next one."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise


def load_secret(file: Path | None, passphrase_file: Path | None = None) -> SecretKey:
    """The key of a file, else of VCC_SIGNING_KEY.

    Raises:
        UsageError: there is none, others can read the file, or it is no key.
        StorageError: the file cannot be read.
    """
    named, word = signing_secrets()[0], passphrase(passphrase_file)
    if file is not None:
        return SecretKey.parse(_read(file), str(file), word)
    if not named:
        raise UsageError(
            "there is no key to sign with",
            "neither --key nor VCC_SIGNING_KEY is given",
            "vcc sign --new-key FILE makes one",
        )
    return SecretKey.parse(named.encode("utf-8", "surrogateescape"), "VCC_SIGNING_KEY", word)


def passphrase(file: Path | None) -> str:
    """The passphrase in a file, else that of VCC_SIGNING_PASSPHRASE; empty for none.

    Raises:
        UsageError: others can read the file, or it is empty.
        StorageError: it cannot be read.
    """
    if file is None:
        return signing_secrets()[1]
    word = _read(file).decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
    if not word:
        raise UsageError(f"{file} holds no passphrase", "it is empty")
    return word


def _read(file: Path) -> bytes:
    with storage("read", str(file)), open_named(file) as opened:
        mode = os.fstat(opened.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & _READABLE_BY_ALL:
            raise UsageError(
                f"{file} is no secret",
                f"other accounts can read or change it (mode {mode & 0o7777:04o})",
                f"chmod 600 {file}; if it was ever read by others, make a new key",
            )
        data = opened.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise UsageError(f"{file} is no key", f"it has more than {MAX_FILE} bytes")
    return data
