"""Public keys: 32 bytes of ed25519 as 64 hex digits, which are also the key's name in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vcc.cache.errors import DeviceError, UsageError
from vcc.cache.extras import install
from vcc.cache.named_files import read_named

KEY_HEX = re.compile(r"[0-9a-f]{64}\Z")
MAX_FILE = 1 << 14

# Points of small order, the sign bit aside (libsodium's list). A signature by such a key holds for
# other messages too, and OpenSSL takes it. The last three are another writing of the first ones.
_SMALL_ORDER = frozenset(
    {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    }
)


class MissingExtra(DeviceError):
    """A package of an extra is not installed."""

    id = "MISSING_EXTRA"


def is_key(text: str) -> bool:
    """Whether `text` is the 64 hex digits of a key that can sign."""
    return KEY_HEX.match(text) is not None and _without_sign(text) not in _SMALL_ORDER


def check_key(text: str) -> str:
    """The same text.

    Raises:
        UsageError: it is no ed25519 public key, or one under which anybody can sign.
    """
    if KEY_HEX.match(text) is None:
        raise UsageError(
            f"{text[:80]!r} is not a public key", "64 lower-case hex digits are expected (ed25519)"
        )
    if not is_key(text):
        raise UsageError(
            f"{text} is not a key to trust", "it is a point of small order: anybody signs for it"
        )
    return text


def read_public_key(text: str) -> str:
    """The hex digits of a key that a user gives: hex, or a file with hex or PEM.

    Raises:
        UsageError: it is neither, a private key, or a key of another algorithm.
    """
    if KEY_HEX.match(text.strip().lower()):
        return check_key(text.strip().lower())
    try:
        data = read_named(Path(text), MAX_FILE)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{text[:200]!r} is neither a public key nor a file that can be read",
            getattr(error, "strerror", "") or str(error),
            "Give 64 hex digits, or the .pub file that vcc sign --new-key wrote",
        ) from error
    return _of_file(data, text)


def _of_file(data: bytes, name: str) -> str:
    if b"PRIVATE KEY" in data:
        raise UsageError(
            f"{name} is a private key",
            "who signs keeps it, others need its public key only",
            "Give the .pub file beside it",
        )
    if b"-----BEGIN" in data[:MAX_FILE]:
        return check_key(_of_pem(data, name))
    try:
        return check_key(data.decode("ascii").strip().lower())
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not a public key", "it is neither hex nor PEM") from error


def _of_pem(data: bytes, name: str) -> str:
    serialization, ed25519 = crypto("serialization"), crypto("asymmetric.ed25519")
    try:
        key = serialization.load_pem_public_key(data)
    except Exception as error:  # ValueError, and UnsupportedAlgorithm of the library
        raise UsageError(f"{name} is not a public key", str(error)) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise UsageError(f"{name} is a key of another kind", f"{type(key).__name__}, not ed25519")
    return str(key.public_bytes_raw().hex())


def crypto(name: str) -> Any:
    """A module of `cryptography.hazmat.primitives`; a boot that checks no signature has none.

    Raises:
        MissingExtra: it is not installed.
    """
    from importlib import import_module

    try:
        return import_module(f"cryptography.hazmat.primitives.{name}")
    except ImportError as error:
        raise MissingExtra(
            "signatures cannot be made or checked here",
            f"the package cryptography is not installed: {error}",
            install("cryptography"),
        ) from error


def _without_sign(text: str) -> str:
    last = int(text[-2:], 16) & 0x7F
    return f"{text[:-2]}{last:02x}"
