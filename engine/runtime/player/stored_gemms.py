"""What a site's GEMM store holds for a player: entries of its products, and measured choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcc.engine.graphs.table.decode import decode_products
from vcc.engine.graphs.table.layout import DTYPE_NAMES
from vcc.engine.runtime.player.device import Device
from vcc.engine.runtime.player.gemm_report import GemmReport
from vcc.engine.runtime.player.handle import PlayerHandle
from vcc.engine.tune.shapes import GemmShape, Gpu
from vcc.engine.tune.store import GemmEntry, GemmStore
from vcc.engine.tune.wanted import Products, products_of_tables, rows_of

STORED, VARIANT = 1, 2
"""Routes of csrc/player/gemms.h."""


def add_stored(
    handle: PlayerHandle, device: Device, site: Path | None, table: bytes, sizes: Sequence[int]
) -> GemmReport:
    """As `gemms.add_gemms`, where there is a store.

    Raises:
        StorageError, Unsafe: it cannot be read.
        IntegrityError: an entry is damaged.
    """
    store, gpu = GemmStore.open(site), Gpu.of_info(device.info())
    products = products_of_tables([decode_products(table)])
    shapes = products.shapes(rows_of(sizes, max(products.gemms.values(), default=1)))
    entries = store.entries(gpu, shapes)
    for entry in entries:
        _add(handle, entry)
    # After a failed self-test nothing is tried again.
    sound = all(test.passed for test in store.self_tests(gpu).values())
    choices = _prefer(handle, store, gpu, products)
    return GemmReport(len(entries), choices, lacking=sound and len(entries) < len(shapes))


def _prefer(handle: PlayerHandle, store: GemmStore, gpu: Gpu, products: Products) -> int:
    choices = store.measured(gpu, products.variants)
    for shape, choice in choices.items():
        if products.has(shape):
            route = VARIANT if choice.route == "triton" else STORED
            handle.prefer_gemm(shape.m, _key(shape), route)
    return len(choices)


def _add(handle: PlayerHandle, entry: GemmEntry) -> None:
    for digest, cubin in entry.cubins.items():
        handle.add_cubin(digest, cubin)
    handle.add_gemm(entry.shape.m, _key(entry.shape), entry.table)


def _key(shape: GemmShape) -> tuple[int, int, int, int]:
    return shape.n, shape.k, DTYPE_NAMES.index(shape.dtype), int(shape.has_c)
