"""Matrix products of a player: entries of the site's GEMM store for this device, and choices.

A site where nothing was recorded costs one look into the store. What reads it is imported when
there is something.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vcc.cache.errors import VccError
from vcc.cache.settings import cache_root
from vcc.cache.shelf import Shelf
from vcc.engine.runtime.player.collector import collector_paused
from vcc.engine.runtime.player.gemm_report import GemmReport

if TYPE_CHECKING:
    from vcc.engine.graphs.table.types import NodeTable
    from vcc.engine.runtime.player.device import Device
    from vcc.engine.runtime.player.handle import PlayerHandle, Shape
    from vcc.engine.tune.families import Products

SHELF = ("gemm",)
"""Where engine/tune/store.py keeps products."""


class Gemms(Protocol):
    """What a player was offered, and the bringing of it."""

    @property
    def report(self) -> GemmReport:
        """What there is; `trouble` may come later."""

    def start(self, graphs: Sequence[Sequence[Shape]]) -> None:
        """Begin to bring entries, in the order in which these graphs of each player need them."""

    def wait(self) -> None:
        """Until all have come."""

    def close(self) -> None:
        """Bring no more, and wait for the thread that does."""


class NoGemms:
    """Nothing was offered."""

    def __init__(self, report: GemmReport) -> None:
        self.report = report

    def start(self, graphs: Sequence[Sequence[Shape]]) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def offer_gemms(
    handles: Sequence[PlayerHandle],
    device: Device,
    site: Path | None,
    sizes: Sequence[int],
    *,
    unsigned: bool = True,
    tables: Sequence[NodeTable] = (),
) -> Gemms:
    """Offer the players of an artifact's tables what the site's store holds for their products.

    Nothing of the store is needed: without it the table's own kernels compute everything, so a
    store that cannot be read costs a note.

    Args:
        handles: the players, not placed yet; the first one's memory serves all.
        device: whose model the entries are for.
        site: root of the store; None where the settings say.
        sizes: rows of the graphs that will be built.
        unsigned: whether code that bears no signature may be used, as all of that store does.
        tables: those of the players, where they were decoded: they tell which rows are fixed.
    """
    if not unsigned:
        why = "its recordings bear no signature, which the policy asks for"
        return NoGemms(GemmReport(0, 0, trouble=why))
    root = cache_root(site)
    try:
        if not Shelf(root, SHELF).shelves():
            return NoGemms(GemmReport(0, 0, lacking=True))
        with collector_paused():
            from vcc.engine.runtime.player.stored_gemms import offer_stored

            return offer_stored(handles, device, root, sizes, _products(handles, tables))
    except VccError as error:
        return NoGemms(GemmReport(0, 0, trouble=str(error)))


def _products(
    handles: Sequence[PlayerHandle], tables: Sequence[NodeTable]
) -> tuple[list[Products], Products]:
    """Those of each player, and of all."""
    from vcc.engine.tune.families import Products

    if not tables:
        told = [handle.products() for handle in handles]
        return [Products.told(one) for one in told], Products.told(*told)
    from vcc.engine.tune.wanted import products_of_tables

    return [products_of_tables([one]) for one in tables], products_of_tables(tables)
