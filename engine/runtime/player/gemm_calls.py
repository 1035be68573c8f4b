"""The calls of the C ABI that bring code and the GEMM store's entries into a player."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from vcc.engine.native import functions

_C = functions(
    {
        "vcc_player_add_cubins": "ptr buffer u64 bytes u64",
        "vcc_player_products": "ptr -> str",
        "vcc_player_offer_gemms": "ptr bytes u64 buffer",
        "vcc_player_gemm_order": "ptr buffer u64 buffer u64 -> u64",
        "vcc_player_supply_gemms": "ptr buffer u64 bytes u64 bytes u64 buffer -> str",
        "vcc_player_finish_gemms": "ptr",
    }
)

_OFFER = struct.Struct("<q5I2BHQ")
_CUBIN = struct.Struct("<32s2Q")
_ENTRY = struct.Struct("<2I2Q")


class Offer(Struct, frozen=True):
    """What the GEMM store has for a product.

    Attributes:
        rows: of the product.
        shape: n, k, dtype code, with c.
        route: the measured choice: 0 none, 1 the store's entry, 2 the table's kernel.
        workspace: bytes that the entry needs.
        scaled: codes of the result's dtype and of the scales; zeros without scales.
    """

    rows: int
    shape: tuple[int, int, int, int]
    route: int = 0
    workspace: int = 0
    scaled: tuple[int, int] = (0, 0)

    def row(self) -> tuple[int, ...]:
        """As `vcc_player_offer_gemms` takes it."""
        return (self.rows, *self.shape, self.route, *self.scaled, 0, self.workspace)


class Supply:
    """Entries on their way into a player: node tables and cubins, each at a place in `data`.

    Args:
        sizes: bytes of the parts that will be put there.
    """

    ALIGNMENT = 64
    """Of a part in the data: the driver reads cubins where they lie."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.data = np.empty(sum(map(self._room, sizes)), np.uint8)
        self.cubins: list[bytes] = []
        self.entries: list[bytes] = []
        self._view, self._end = self.data.data, 0

    def cubin(self, digest: str, size: int, fill: Callable[[memoryview], None]) -> None:
        """A cubin by its SHA-256; `fill` writes its verified bytes, and what it raises is raised
        here: then there is no cubin."""
        start = self._end
        fill(self._part(size))
        self.cubins.append(_CUBIN.pack(bytes.fromhex(digest), start, size))

    def entry(self, offer: int, table: memoryview) -> None:
        """The node table of an offer."""
        start = self._end
        self._part(len(table))[:] = table
        self.entries.append(_ENTRY.pack(offer, 0, start, len(table)))

    def _part(self, size: int) -> memoryview:
        part = self._view[self._end : self._end + size]
        self._end += self._room(size)
        return part

    @classmethod
    def _room(cls, size: int) -> int:
        return -(-size // cls.ALIGNMENT) * cls.ALIGNMENT


class Graph(Protocol):
    """A step that a graph is made of (`handle.Shape`)."""

    def row(self) -> tuple[int, ...]:
        """As `vcc_player_build` takes it."""


class GemmCalls:
    """What `PlayerHandle` takes beside other calls: cubins and matrix products."""

    _handle: int

    def add_cubins(self, cubins: Mapping[str, bytes]) -> None:
        """Load many, by SHA-256 in hex, in one call without the interpreter lock.

        Any thread may call this before the memory is placed. Their bytes are verified.
        """
        supply = Supply(map(len, cubins.values()))
        for digest, data in cubins.items():
            supply.cubin(digest, len(data), partial(_copy, data))
        rows = b"".join(supply.cubins)
        _C.vcc_player_add_cubins(self._handle, supply.data, supply.data.nbytes, rows, len(cubins))

    def products(self) -> str:
        """What a step multiplies, and by which kernels of the table, as JSON."""
        return str(_C.vcc_player_products(self._handle))

    def offer_gemms(self, offers: Sequence[Offer]) -> list[int]:
        """Say what the GEMM store has, before the memory is placed.

        Returns:
            The numbers of those that some step may take: their entries must come
            (`supply_gemms`), or be given up (`finish_gemms`). Steps that need one wait for it.
        """
        needed = np.zeros(len(offers), np.uint8)
        rows = b"".join(_OFFER.pack(*offer.row()) for offer in offers)
        _C.vcc_player_offer_gemms(self._handle, rows, len(offers), needed)
        found: list[int] = np.flatnonzero(needed).tolist()
        return found

    def gemm_order(self, shapes: Sequence[Graph], offers: int) -> list[int]:
        """Which of so many offers these graphs take, in the order in which they are needed.

        Any thread may call this, beside other calls.
        """
        order = np.zeros(offers, np.uint32)
        rows = rows_of(shapes)
        found = _C.vcc_player_gemm_order(self._handle, rows, len(shapes), order, offers)
        taken: list[int] = order[:found].tolist()
        return taken

    def supply_gemms(self, supply: Supply) -> tuple[int, str]:
        """Hand over entries of the GEMM store; any thread may, beside other calls.

        Returns:
            How many were refused, and why the first was. They count as never offered.
        """
        cubins, entries = b"".join(supply.cubins), b"".join(supply.entries)
        taken = np.zeros(len(supply.entries), np.uint8)
        trouble = _C.vcc_player_supply_gemms(
            *(self._handle, supply.data, supply.data.nbytes),
            *(cubins, len(supply.cubins), entries, len(supply.entries), taken),
        )
        return int(len(taken) - taken.sum()), trouble

    def finish_gemms(self) -> None:
        """No entry comes any more: nothing waits for those that are not there."""
        _C.vcc_player_finish_gemms(self._handle)


def _copy(data: bytes, into: memoryview) -> None:
    into[:] = data


def rows_of(shapes: Sequence[Graph]) -> npt.NDArray[np.int32]:
    """Graphs as `vcc_player_build` takes them."""
    return np.array([shape.row() for shape in shapes], dtype=np.int32).reshape(-1, 7)
