"""Moves what a capture's dead memory can point to, so that two captures at one place differ in it.

Structures of kernels are filled over dead stack, so their padding holds old addresses: of heap
blocks, Python objects, code, stack frames, the driver's own memory. Captures are forks of one
process and do the same, so FIRST and AGAIN would hold the same ones, and where SECOND holds others
they would look like values that move with the regions. Hence everything that FIRST and SECOND
allocate lies further on than what AGAIN allocates:

* blocks of malloc: all free blocks are taken in every capture, then in two of them the heap grows;
* new mappings (libraries, Python's arenas, threads): every hole is taken, then addresses in two;
* Python's own pools: used up in every capture, so that the next arena is a new mapping;
* the stack: two captures run at the end of a chain of calls;
* device addresses: some are reserved in two captures, behind the regions, with small allocations.

Every byte of a distance is neither 0 nor 255, so that an address and the same further on differ in
each byte that the distance reaches, whatever is carried: an old address that is overwritten in part
differs in what is left. SECOND is spread as FIRST is: what differs between them shall be where
their regions lie, and nothing else. AGAIN has the smaller addresses left free, so that the place of
FIRST's regions is not taken by its own mappings.
"""

from __future__ import annotations

import sys
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from vcc.engine.graphs.recorder.addresses import AGAIN, ANYWHERE, FIRST, SECOND
from vcc.engine.graphs.recorder.calls import reserve, spread_heap, spread_mappings
from vcc.engine.graphs.recorder.mappings import read_mappings
from vcc.engine.graphs.recorder.replay import DeviceBytes

Result = TypeVar("Result")
Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spread:
    """How much further on things lie than they would by themselves.

    Attributes:
        heap: bytes of malloc's heap.
        mapped: bytes of addresses below the mappings of the process; no memory.
        frames: calls on the stack below the capture, a few hundred bytes each.
        device: bytes of device addresses; no memory.
        blocks: bytes of each kept allocation on the device.
    """

    heap: int = 0
    mapped: int = 0
    frames: int = 0
    device: int = 0
    blocks: tuple[int, ...] = ()


FAR = Spread(
    heap=0x0152_3450,
    mapped=0x13_5791_5000,
    frames=170,
    device=0x01_3260_0000,
    blocks=(256, 256, 256, 3 << 16, 7 << 16, 3 << 20, 5 << 20),
)

SPREADS: Mapping[str, Spread] = {FIRST: FAR, SECOND: FAR, AGAIN: Spread()}

SMALL_OBJECTS: Mapping[int, Callable[[], Any]] = {
    **{size: partial(bytes, size - sys.getsizeof(b"")) for size in range(512, 32, -16)},
    32: partial(complex, 0, 1),
    16: object,
}
"""Makes an object of each size, in bytes, that Python keeps pools for; the largest takes the pools
that have no size yet."""

MOST = 1 << 18
"""Objects that are made at most to use pools up."""

_kept: list[Any] = []


def spread_process(name: str) -> None:
    """Spread what this process allocates; before torch is imported and the driver is opened.

    Args:
        name: of the capture.

    Raises:
        DeviceError: this process may not have that many addresses.
    """
    spread = SPREADS[name]
    old = _mapped()
    spread_mappings(spread.mapped)
    made: list[Any] = []
    for make in SMALL_OBJECTS.values():
        _use_up(make, old, made)
    _kept.extend((made, old))  # what is freed now leaves a free block
    spread_heap(spread.heap)


def spread_device(name: str) -> None:
    """Spread what the driver allocates; after the regions have their place, before kernels load.

    Raises:
        DeviceError: no addresses, or out of memory.
    """
    spread = SPREADS[name]
    if spread.device:
        reserve(ANYWHERE, spread.device)
    _kept.extend(DeviceBytes(size) for size in spread.blocks)


def on_spread_stack(name: str, task: Callable[[], Result]) -> Result:
    """Call `task` further down the stack; in this thread, which signals and torch know."""
    frames, limit = SPREADS[name].frames, sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * frames)
    try:
        return _deeper(frames, task)
    finally:
        sys.setrecursionlimit(limit)


def _deeper(frames: int, task: Callable[[], Result]) -> Result:
    """Through `map`, because Python calls Python without the stack."""
    if frames == 0:
        return task()
    result: Result = next(map(partial(_deeper, frames - 1), (task,)))
    return result


def _use_up(make: Callable[[], Any], old: Sequence[Edge], made: list[Any]) -> None:
    """Make objects of a kind until one lies where nothing was mapped before."""
    made.append(make())
    while bisect(old, (id(made[-1]), 1)) % 2 and len(made) < MOST:
        made.append(make())


def _mapped() -> list[Edge]:
    """Where each mapping of this process begins (1) and ends (0), in order."""
    return [edge for one in read_mappings() for edge in ((one.start, 1), (one.end, 0))]
