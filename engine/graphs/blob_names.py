"""Names of the blobs of a GPU artifact; light, as a boot imports them."""

from __future__ import annotations

TABLE, CUBIN, CONSTANT = "table/", "cubin/", "constant/"
"""Beginnings of blob names in the manifest of a GPU artifact."""

STEP = "table/step"
"""The table of a planned step; `table/step/9-32` where a range has one of its own."""


def table_name(sizes: str) -> str:
    """The blob of a planned step's table.

    Args:
        sizes: its range, as `9-32`; empty where one table serves every size.
    """
    return f"{STEP}/{sizes}" if sizes else STEP
