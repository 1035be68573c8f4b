"""Which of a table's own kernels computes a matrix product."""

from __future__ import annotations

from vcc.engine.graphs.table.layout import Family
from vcc.engine.graphs.table.types import NodeTable, Variant


def variant_for(table: NodeTable, family: Family, rows: int) -> Variant | None:
    """The first that fits, in the order of the table, as the player takes it; None: none does.

    Args:
        table: whose kernels they are.
        family: of the product.
        rows: how many it has.
    """
    return next((one for one in table.variants if one.fits(family, rows)), None)
