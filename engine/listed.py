"""Long lists as people read them: the first and the last few, and how many. JSON has all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MOST, ENDS = 40, 4
"""A list of more than `MOST` entries is shown as its first and last `ENDS`."""


def few(found: Sequence[T], gap: T) -> list[T]:
    """The entries, those in the middle of a long list as one `gap`."""
    return [*found] if len(found) <= MOST else [*found[:ENDS], gap, *found[-ENDS:]]


def listed(names: Sequence[str]) -> str:
    """Names with commas between them."""
    return ", ".join(few(names, "…")).replace(", …, ", " … ")


def list_text(text: str) -> str:
    """A value of a key or a reason; of a long JSON list in it the ends and the count."""
    if len(text) <= MOST or not (text.startswith("[") and text.endswith("]")):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if len(found) <= MOST:
        return text
    shown = (json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in found)
    return f"[{listed([*shown]).replace(', ', ',')}] ({len(found)} in all)"
