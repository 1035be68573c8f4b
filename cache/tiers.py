"""Tiers: the local store, and the read-only directories below it, in the order they are asked.

A lower directory is a store of the same layout that somebody else fills: a layer of a container
image, a mount that an administrator keeps. Nothing is ever written, moved or removed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from vcc.cache.errors import StorageError
from vcc.cache.folder import Folder
from vcc.cache.root import opened
from vcc.cache.trouble import storage

if TYPE_CHECKING:
    from vcc.cache.key import Key
    from vcc.cache.request import Entry

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Tier:
    """One place where artifacts lie.

    Args:
        name: "local", or "lower 1" for the first of the lower directories.
        root: absolute path of the store's root.
        kind: what it is.
        writable: whether vcc writes here.
    """

    name: str
    root: Path
    kind: Literal["local", "lower"]
    writable: bool


class RemoteSource(Protocol):
    """A remote that is asked when neither the local store nor a lower one has an answer."""

    @property
    def url(self) -> str:
        """Where it is, without credentials."""

    def telling(self, told: Callable[[str], None]) -> RemoteSource:
        """The same remote, which tells `told` of what was pulled or passed over, a line each."""

    def bring(self, root: Path, base: Key, usable: Callable[[Entry], bool]) -> bool:
        """Pull the newest usable artifact into the local store.

        Args:
            root: the root of the local store.
            base: the part of the request that is always stated.
            usable: whether an entry answers the look-up.

        Returns:
            Whether the local store has something now that it had not.

        Raises:
            VccError: the remote failed. The store tells it and goes on, or raises when strict.
        """


def tiers_of(root: Path, lower: tuple[Path, ...]) -> tuple[Tier, ...]:
    """The tiers in the order they are asked; a directory that is named twice is asked once."""
    others = [path for path in dict.fromkeys(lower) if path != root]
    below = (Tier(f"lower {n}", path, "lower", False) for n, path in enumerate(others, 1))
    return (Tier(LOCAL, root, "local", True), *below)


@contextmanager
def reading(tier: Tier) -> Iterator[Folder | None]:
    """The open `v1` folder of a tier; None where there is no store yet.

    Raises:
        StorageError: it cannot be read, or a lower directory is not there at all.
        Unsafe: another account could have prepared it.
    """
    with storage("read the store at", str(tier.root)), ExitStack() as stack:
        try:
            store = stack.enter_context(opened(tier.root, create=False))
        except FileNotFoundError:
            _check_there(tier)
            store = None
        yield store


def _check_there(tier: Tier) -> None:
    """A local store is made when it is needed; a lower one was meant to be there."""
    if tier.kind == "lower" and not tier.root.exists():
        raise StorageError(
            f"the lower store at {tier.root} is not there",
            "no such directory",
            "Mount it, or take it out of VCC_LOWER_DIRS",
        )
