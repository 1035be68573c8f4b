"""Matrix products of a player: entries of the site's GEMM store for this device, and choices.

A site where nothing was recorded costs one look into the store. What reads it is imported when
there is something.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.cache.errors import VccError
from vcc.cache.settings import cache_root
from vcc.cache.shelf import Shelf
from vcc.engine.runtime.player.gemm_report import GemmReport

if TYPE_CHECKING:
    from vcc.engine.runtime.player.device import Device
    from vcc.engine.runtime.player.handle import PlayerHandle

SHELF = ("gemm",)
"""Where engine/tune/store.py keeps products."""


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
        table: bytes of the node table, which the player has taken.
        sizes: rows of the graphs that will be built.
    """
    try:
        if not Shelf(cache_root(site), SHELF).shelves():
            return GemmReport(0, 0, lacking=True)
        from vcc.engine.runtime.player.stored_gemms import add_stored

        return add_stored(handle, device, site, table, sizes)
    except VccError as error:
        return GemmReport(0, 0, trouble=str(error))
