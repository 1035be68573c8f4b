"""The remote of a store: named by its settings, opened only when a look-up misses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from vcc.cache.gate import Gate
from vcc.cache.key import Key
from vcc.cache.remote.url import parse_url
from vcc.cache.request import Entry
from vcc.cache.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """See `RemoteSource`.

    Args:
        address: its URL, which may hold a password.
        gate: whose artifacts are used.
        told: hears of what was pulled and what was passed over, a line each.
    """

    address: str = field(repr=False)
    gate: Gate
    told: Callable[[str], None] = _log.warning

    @property
    def url(self) -> str:
        """See `RemoteSource`."""
        return parse_url(self.address).shown

    def telling(self, told: Callable[[str], None]) -> Source:
        """See `RemoteSource`."""
        return replace(self, told=told)

    def bring(self, root: Path, base: Key, usable: Callable[[Entry], bool]) -> bool:
        """See `RemoteSource`."""
        from vcc.cache.remote.asking import Asking  # a hit does not pay for the import

        return Asking(root, base, usable, self.gate, self.told).ask(self.address)


def source_of(settings: Settings, gate: Gate) -> Source | None:
    """The remote that the settings name; None for none, and where networks are forbidden.

    Raises:
        UsageError: its URL is wrong.
    """
    if not settings.remote:
        return None
    url = parse_url(settings.remote)
    return None if settings.offline and url.scheme != "file" else Source(settings.remote, gate)
