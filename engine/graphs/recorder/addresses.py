"""Where the regions of a capture lie: one reservation of addresses, cut into a pool a region.

Two captures at different places tell pointers from constants, a third at the place of the first
tells constants from noise. Drivers grant a wish for round addresses best; the bases of the pools in
a reservation are odd all the same (an odd number of pages and of 512 bytes further on), because
small numbers and sizes in parameters look like round addresses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vcc.cache.errors import DeviceError
from vcc.engine.graphs.recorder.mappings import read_mappings

FIRST, SECOND, AGAIN = "first", "second", "again"
NAMES = (FIRST, SECOND, AGAIN)
"""The captures, in order; AGAIN lies where FIRST did."""

PAGE = 2 << 20
"""Granularity of device memory, bytes."""

SPARE = 64 << 20
"""Bytes of addresses of a pool beyond its region: torch rounds what it asks for up."""

ANYWHERE = 0
"""A wish that leaves the place to the driver."""

WISHES: Mapping[str, tuple[int, ...]] = {
    FIRST: (0x6000 << 32, 0x2000 << 32, 0x6800 << 32, 0x3000 << 32, 0x1800 << 32, ANYWHERE),
    SECOND: (
        *(0x4080 << 32, 0x2880 << 32, 0x5080 << 32),
        *(0x4000 << 32, 0x6400 << 32, 0x2800 << 32, 0x3800 << 32, 0x5000 << 32, ANYWHERE),
    ),
}
"""Addresses that are tried in turn. The first of the second capture differ from the first capture's
in the fifth byte too: a number of one byte over that byte of an old address in a region makes the
word none that moves with the region, whatever it is."""

SKIPS: Mapping[str, tuple[tuple[int, int], ...]] = {
    FIRST: ((3, 0x2A00), (8, 0x1600), (14, 0x3E00), (6, 0x0E00)),
    SECOND: ((11, 0x5200), (18, 0x4A00), (24, 0x0600), (30, 0x7200)),
}
"""Pages before each pool, so that distances of regions differ too, and bytes into its first page:
an odd multiple of 512, what node tables promise of a region."""

SHARES = (1, 2, 4, 8)
"""The workspace gets the free memory divided by the first of these that can be reserved."""

REPORT = "report.json"

Reserve = Callable[[int, int], int]
"""From an address (or ANYWHERE) and bytes to where the driver reserved them; it keeps them only if
that is what was asked for."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """A reservation, the size of each pool in it, and where each begins."""

    start: int
    sizes: tuple[int, ...]
    bases: tuple[int, ...]

    @property
    def end(self) -> int:
        """Behind the last pool."""
        return self.bases[-1] + self.sizes[-1]

    @classmethod
    def at(cls, start: int, name: str, sizes: Sequence[int]) -> Addresses:
        """Pools of these sizes in a reservation at `start`."""
        bases, page = [], start // PAGE
        skips = SKIPS[FIRST if name == AGAIN else name]
        for (pages, low), size in zip(skips, sizes, strict=True):
            page = (page + pages) | 1
            bases.append(page * PAGE + low)
            page += _pages(size + low) // PAGE
        return cls(start, tuple(sizes), tuple(bases))

    @classmethod
    def of_report(cls, file: Path) -> Addresses:
        """Those of a capture that is done."""
        found = json.loads(file.read_text("utf-8"))["addresses"]
        return cls(found["start"], tuple(found["sizes"]), tuple(found["bases"]))

    def as_dict(self) -> dict[str, object]:
        """For a report."""
        return asdict(self)

    def meets(self, other: Addresses) -> bool:
        """Whether the two have addresses in common."""
        return self.start < other.end and other.start < self.end


def place(
    name: str, regions: Sequence[int], free: int, first: Addresses | None, reserve: Reserve
) -> Addresses:
    """Reserve the addresses of a capture.

    Args:
        name: of `NAMES`.
        regions: bytes of weights, cache, inputs and outputs.
        free: bytes of free device memory: the largest workspace.
        first: where the first capture lay; None for that one itself.
        reserve: asks the driver.

    Raises:
        DeviceError: every wish was refused; each is named with what the driver said.
    """
    refused: list[str] = []
    for wish in _wishes(name, regions, free, first):
        for _ in range(2 if wish.start == ANYWHERE else 1):  # what is kept pushes the next one away
            got = _ask(wish, name, reserve, refused)
            if got is not None and (name == AGAIN or first is None or not got.meets(first)):
                return got
    raise DeviceError(
        "the recorder cannot have the addresses it needs",
        "; ".join(refused) or "every place meets the first capture's",
        "try again; something else in this process, or the driver, holds them",
    )


def _wishes(
    name: str, regions: Sequence[int], free: int, first: Addresses | None
) -> Iterator[Addresses]:
    if name == AGAIN and first is not None:
        yield first
        return
    pools = [_pages(size) + SPARE for size in regions]
    for share in SHARES:
        sizes = (*pools, _pages(free // share) + SPARE)
        yield from (Addresses.at(start, name, sizes) for start in WISHES[name])


def _ask(wish: Addresses, name: str, reserve: Reserve, refused: list[str]) -> Addresses | None:
    size = _pages(wish.end - wish.start)
    asked = f"{size >> 20} MiB at {wish.start:#x}"
    try:
        got = reserve(wish.start, size)
    except DeviceError as error:
        refused.append(f"{asked}: {error}")
        return None
    if wish.start not in (ANYWHERE, got):
        refused.append(f"{asked}: the driver gave {got:#x}{_holder(wish)}")
        return None
    return Addresses.at(got, name, wish.sizes)


def _holder(wish: Addresses) -> str:
    """What this process has at a place that was refused."""
    for one in read_mappings():
        if one.meets(wish.start, wish.end):
            return f", {one.start:x}-{one.end:x} is {one.name}"
    return ""


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
