"""Where artifacts are looked for and whose are used: options of commands that boot or build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vcc.cli import options
from vcc.cli.folding import Command, folding

if TYPE_CHECKING:
    from vcc.cache.store import Store


@dataclass(frozen=True, slots=True)
class Place:
    """The values of the options that say which store; what was not given the environment says."""

    cache_dir: options.CacheDir = None
    remote: options.Remote = None
    policy: options.Policy = None
    strict: options.Strict = False

    def words(self, store: Store) -> list[str]:
        """The same options for another vcc, which shall use this store."""
        words = ["--cache-dir", str(store.root)]
        words += ["--remote", self.remote] if self.remote is not None else []
        words += ["--policy", self.policy] if self.policy is not None else []
        return words + (["--strict"] if self.strict else [])


def takes_place(command: Command) -> Command:
    """A command whose parameter `place` becomes the options of `Place`."""
    return folding("place", Place)(command)


def open_store(place: Place) -> Store:
    """The store of the options, over what the environment says.

    Raises:
        UsageError: the policy is not known, or a variable cannot be read.
    """
    from vcc.cache.settings import read_settings
    from vcc.cache.store import Store

    settings = read_settings()
    if place.policy is not None:
        options.check_choice("--policy", place.policy, options.POLICIES)
        settings = replace(settings, policy=place.policy)
    if place.remote is not None:
        settings = replace(settings, remote=place.remote)
    if place.strict:
        settings = replace(settings, strict=True)
    return Store.open(place.cache_dir, settings=settings)
