"""The distance between the two halves of a KV cache, as launches say it."""

from __future__ import annotations

from vcc.engine.graphs.expr import Expr
from vcc.engine.ops.triton.specs import Facts


def plane(width: int, facts: Facts) -> Expr:
    """Elements between the K and the V half of a cache of K blocks, with rows of `width`."""
    return ["*", "K", facts.block_size * width]


def aligned_plane(width: int, facts: Facts) -> tuple[str, ...]:
    """`plane` where it is a multiple of 16 for every number of blocks."""
    return ("plane",) if facts.block_size * width % 16 == 0 else ()
