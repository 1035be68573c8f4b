"""Remotes for tests: how to name a fresh one, push to it and pull from it within short limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from support.chaos_proxy import Chaos, chaos
from vcc.cache.gate import default_gate
from vcc.cache.remote.open import open_remote
from vcc.cache.remote.patience import Limits, Patience
from vcc.cache.remote.pull import pull
from vcc.cache.remote.push import Push, push_stored
from vcc.cache.store import Store

QUICK = Limits(connect_s=2, idle_s=1, total_s=20, attempts=3, first_wait_s=0.01, longest_wait_s=1.2)
NUMBER = count()


@dataclass(frozen=True)
class Kind:
    """A kind of remote and how to name one.

    Attributes:
        name: "file", "s3" or "oci".
        server: URL of the server; empty for a directory.
        url: the URL of a fresh, empty remote, given a server or a proxy before it.
    """

    name: str
    server: str
    url: Callable[[str], str]

    def fresh(self) -> str:
        """The URL of a new remote."""
        return self.url(self.server)

    @contextmanager
    def spoilt(self) -> Iterator[tuple[str, Chaos]]:
        """The URL of a new remote behind a proxy that can spoil answers, and the proxy."""
        with chaos(self.server) as proxy:
            yield self.url(proxy.url), proxy


@contextmanager
def at(url: str, limits: Limits = QUICK):
    """The remote at a URL."""
    remote = open_remote(url, limits)
    try:
        yield remote
    finally:
        remote.close()


def push_all(store: Store, url: str, *, verify: bool = False, limits: Limits = QUICK):
    """Push everything; what became of it."""
    with at(url, limits) as remote:
        push = Push(remote, Patience(limits), verify)
        return [push_stored(push, store, entry) for entry in store.entries()]


def pull_one(store: Store, url: str, entry, *, by_hand: bool = True, limits: Limits = QUICK):
    """Pull one artifact; what became of it."""
    with at(url, limits) as remote:
        return pull(store.root, remote, entry, default_gate(), Patience(limits), by_hand=by_hand)


def visible(store: Store) -> list[str]:
    """Ids of what the store offers; temporary folders of this process must be gone."""
    tmp = store.root / "v1" / "tmp"
    left = [one.name for one in tmp.iterdir()] if tmp.exists() else []
    assert [name for name in left if name != "partial"] == []
    return [entry.artifact for entry in store.entries()]
