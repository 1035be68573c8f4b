"""The keyring: public keys whose signatures count here."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from vcc.cache.canonical import FormatError
from vcc.cache.errors import UsageError
from vcc.cache.trust.place import TrustPlace
from vcc.cache.trust.publickey import KEY_HEX, is_key

KEYS = "keys"
MAX_KEYS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}\Z")


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trusted key.

    Args:
        key: the public key, 64 hex digits.
        name: for people; each once.
        comment: free text.
        added: seconds since 1970.
        builders: the names of builders that this key may speak for; empty: under policy `signed`
            any, under `prod` none.
    """

    key: str
    name: str
    comment: str = ""
    added: int = 0
    builders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keyring:
    """All trusted keys, each once.

    Args:
        keys: of the user's folder first.
        paths: the file of each key, by its hex digits.
    """

    keys: tuple[TrustedKey, ...]
    paths: dict[str, str]

    @classmethod
    def read(cls, place: TrustPlace) -> Keyring:
        """The keys of both trust folders.

        Raises:
            FormatError: a file is no key, or there are too many.
            StorageError, Unsafe: a folder cannot be read or is not safe.
        """
        keys: dict[str, TrustedKey] = {}
        paths: dict[str, str] = {}
        for path, one in place.read_folder(KEYS, TrustedKey):
            _check(one, path)
            keys.setdefault(one.key, one)
            paths.setdefault(one.key, path)
        if len(keys) > MAX_KEYS:
            raise FormatError("there are too many trusted keys", f"{len(keys)}, at most {MAX_KEYS}")
        return cls(tuple(keys.values()), paths)

    def named(self, name: str) -> TrustedKey:
        """The key of a name, of its hex digits or of their beginning (8 at least).

        Raises:
            UsageError: there is none, or several begin so.
        """
        low = name.lower()
        fit = [k for k in self.keys if k.name == name or (len(low) >= 8 and k.key.startswith(low))]
        if len(fit) == 1:
            return fit[0]
        why = "no key of that name" if not fit else ", ".join(one.key[:16] for one in fit)
        raise UsageError(f"{name!r} is not one trusted key", why, "vcc trust ls lists them")


def file_of(key: str) -> str:
    """The file of a key below the trust folder."""
    return f"{KEYS}/{key}.json"


def add_key(place: TrustPlace, new: TrustedKey) -> str:
    """Trust a key; its entry in the user's folder is replaced. Returns the file's path.

    Raises:
        UsageError: another key has the name, or the name cannot be one.
        FormatError, StorageError, Unsafe: as `Keyring.read`.
    """
    if not _NAME.match(new.name) or KEY_HEX.match(new.name):
        raise UsageError(f"{new.name!r} is not a name for a key", "letters, digits, . _ @ + -")
    ring = Keyring.read(place)
    other = next((one for one in ring.keys if one.name == new.name and one.key != new.key), None)
    if other is not None:
        raise UsageError(
            f"another key is named {new.name}",
            f"it is {other.key}",
            f"choose another --name, or vcc trust rm {new.name} first",
        )
    return str(place.write(file_of(new.key), new))


def remove_key(place: TrustPlace, key: TrustedKey, path: str) -> None:
    """Trust a key no more.

    Raises:
        UsageError: it is the administrator's.
        StorageError, Unsafe: the folder cannot be written.
    """
    if not path.startswith(f"{place.user.resolve()}/") and not path.startswith(f"{place.user}/"):
        raise UsageError(
            f"{key.name} is not yours to remove",
            f"it stands in {path}",
            f"vcc trust revoke {key.name} refuses it for your account",
        )
    place.remove(f"{KEYS}/{path.rpartition('/')[2]}")


def _check(one: TrustedKey, path: str) -> None:
    if not is_key(one.key):
        raise FormatError(f"{path} cannot be used", "it holds no ed25519 key that can be trusted")
    if not _NAME.match(one.name):
        raise FormatError(f"{path} cannot be used", f"{one.name[:80]!r} is not a name for a key")
