"""Matrix products of a player: entries of the site's GEMM store for this device, and choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcc.cache.errors import VccError
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.layout import DTYPE_NAMES
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.tune.shapes import GemmShape, Gpu
from vcc.engine.tune.store import GemmEntry, GemmStore
from vcc.engine.tune.wanted import Products, products_of_tables, rows_of

STORED, VARIANT = 1, 2
"""Routes of csrc/player/gemms.h."""


@dataclass(frozen=True, slots=True)
class GemmReport:
    """Entries that the player got, and why there are none where there could be some."""

    entries: int
    choices: int
    trouble: str = ""

    def __str__(self) -> str:
        if self.trouble:
            return f"the GEMM store is not used: {self.trouble}"
        return f"matrix products: {self.entries} from the GEMM store, {self.choices} choices"


def add_gemms(
    handle: PlayerHandle, device: Device, site: Path | None, table: bytes, sizes: Sequence[int]
) -> GemmReport:
    """Give a player what the site's store holds for its products.

    Nothing of the store is needed: without it the table's own kernels compute everything, so a
    store that cannot be read costs a note.

    Args:
        handle: the player, not placed yet.
        device: whose model the entries are for.
        site: root of the store; None where the settings say.
        table: bytes of the node table.
        sizes: rows of the graphs that will be built.
    """
    try:
        store, gpu = GemmStore.open(site), Gpu.of_info(device.info())
        if not store.known(gpu):
            return GemmReport(0, 0)
        products = products_of_tables([decode(table)])
        return _added(handle, store, gpu, products, sizes)
    except VccError as error:
        return GemmReport(0, 0, str(error))


def _added(
    handle: PlayerHandle, store: GemmStore, gpu: Gpu, products: Products, sizes: Sequence[int]
) -> GemmReport:
    rows = rows_of(sizes, max(products.gemms.values(), default=1))
    entries = store.entries(gpu, products.shapes(rows))
    for entry in entries:
        _add(handle, entry)
    choices = store.measured(gpu, products.variants)
    for shape, choice in choices.items():
        if products.has(shape):
            route = VARIANT if choice.route == "triton" else STORED
            handle.prefer_gemm(shape.m, _key(shape), route)
    return GemmReport(len(entries), len(choices))


def _add(handle: PlayerHandle, entry: GemmEntry) -> None:
    for digest, cubin in entry.cubins.items():
        handle.add_cubin(digest, cubin)
    handle.add_gemm(entry.shape.m, _key(entry.shape), entry.table)


def _key(shape: GemmShape) -> tuple[int, int, int, int]:
    return shape.n, shape.k, DTYPE_NAMES.index(shape.dtype), int(shape.has_c)
