"""Trusted remotes: what a miss pulls from them counts as built by this account."""

from __future__ import annotations

import msgspec

from vcc.cache.trust.place import TrustPlace

FILE = "remotes.json"


class Remotes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """URLs without credentials, as the marks of pulled artifacts have them."""

    remotes: tuple[str, ...] = ()


def read_remotes(place: TrustPlace) -> tuple[str, ...]:
    """The URLs of both trust folders; raises as `TrustPlace.read`."""
    found = (url for one in place.read(FILE, Remotes) for url in one.remotes)
    return tuple(dict.fromkeys(found))


def change_remotes(place: TrustPlace, url: str, *, trusted: bool) -> bool:
    """Add or remove a URL in the user's file; returns whether that changed anything.

    Raises:
        FormatError, StorageError, Unsafe: the file cannot be read or written.
    """
    own = place.read_own(FILE, Remotes) or Remotes()
    if (url in own.remotes) == trusted:
        return False
    rest = tuple(one for one in own.remotes if one != url)
    place.write(FILE, Remotes((*rest, url) if trusted else rest))
    return True


def is_trusted(url: str, remotes: tuple[str, ...]) -> bool:
    """Whether a mark's URL is a trusted remote: the same text, a last slash aside."""
    return url.rstrip("/") in {one.rstrip("/") for one in remotes}
