"""Numbers of things, in words."""

from __future__ import annotations

_SINGULARS = {"launches": "launch"}
"""What is more than the plural without its last letter."""


def amount(count: int, plural: str) -> str:
    """So many of them.

    >>> amount(1, "tables"), amount(2, "tables"), amount(1, "launches")
    ('1 table', '2 tables', '1 launch')
    """
    if count != 1:
        return f"{count} {plural}"
    return f"1 {_SINGULARS.get(plural, plural.removesuffix('s'))}"
