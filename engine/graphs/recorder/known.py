"""What a capture knew of its addresses: its pools, and what its process had mapped."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vcc.engine.graphs.recorder.addresses import REPORT, Addresses
from vcc.engine.graphs.recorder.mappings import Mapping, read_mappings
from vcc.engine.graphs.recorder.plan import KINDS

MAPS = "maps"
"""File with the mappings of a process that captured, as /proc writes them."""

BEHIND = 4 << 30
"""Bytes behind a reservation in which a driver puts its own memory."""

NEAR = 1 << 40
"""Bytes around a reservation in which an address is told by its distance."""


@dataclass(frozen=True, slots=True)
class Known:
    """Of one capture; without pools and mappings where nothing is known.

    Attributes:
        pools: where they lie.
        mappings: of its process, ascending.
    """

    pools: Addresses | None = None
    mappings: tuple[Mapping, ...] = ()

    @classmethod
    def of_folder(cls, folder: Path) -> Known:
        """Of a capture that is done."""
        file = folder / MAPS
        mappings = read_mappings(file) if file.exists() else ()
        return cls(Addresses.of_report(folder / REPORT), mappings)

    def is_reserved(self, value: int) -> bool:
        """Whether an address lies in the reservation of the regions."""
        return self.pools is not None and self.pools.start <= value < self.pools.end

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """[start, end) of the mappings, and of the reservation with what may follow it closely."""
        mapped = tuple((one.start, one.end) for one in self.mappings)
        if self.pools is None:
            return mapped
        return (*mapped, (self.pools.start, self.pools.end + BEHIND))

    def tell(self, value: int) -> str:
        """What an address is, as far as that is known; empty if nothing is."""
        said = (*self._pool(value), *self._mapped(value))
        return ", ".join(said)

    def _pool(self, value: int) -> Iterable[str]:
        if self.pools is None:
            return
        at = zip(KINDS, self.pools.bases, self.pools.sizes, strict=True)
        inside = [(kind, base) for kind, base, size in at if base <= value < base + size]
        if inside:
            yield f"pool {inside[0][0].name} + {value - inside[0][1]:#x}"
        elif self.is_reserved(value):
            yield "between pools"
        elif 0 <= value - self.pools.end < NEAR:
            yield f"{value - self.pools.end:#x} behind the pools"
        elif 0 < self.pools.start - value < NEAR:
            yield f"{self.pools.start - value:#x} before the pools"

    def _mapped(self, value: int) -> Iterable[str]:
        at = bisect(self.mappings, value, key=lambda one: one.start) - 1
        if at >= 0 and self.mappings[at].holds(value):
            yield f"{self.mappings[at].name} + {value - self.mappings[at].start:#x}"
