"""Sizes of tiles; apart, because layers need them where no build is near."""

from __future__ import annotations


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least `value`."""
    return 1 << max(value - 1, 0).bit_length()
