"""Figures of a node table for people: counts of nodes, matrix products, sizes of the regions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vcc.engine.graphs.expr import Expr, evaluate
from vcc.engine.graphs.table.types import NodeTable, RegionKind


def figures(table: NodeTable, data: bytes) -> dict[str, Any]:
    """What a manifest says of a table.

    Args:
        table: the table.
        data: its encoded form.
    """
    highs = {symbol.name: symbol.high for symbol in table.symbols}
    return {
        "bytes": len(data),
        "symbols": {symbol.name: [symbol.low, symbol.high] for symbol in table.symbols},
        "nodes": {
            kind.lower(): count
            for kind, count in sorted(Counter(node.kind.name for node in table.nodes).items())
        },
        "segments": dict(sorted(Counter(one.kind.name.lower() for one in table.segments).items())),
        "kernels": len(table.kernels),
        "cubins": len(table.cubins),
        "cubin_bytes": sum(size for _, size in table.cubins),
        "gemms": [
            {"m": text(one.m), "n": one.n, "k": one.k, "dtype": one.dtype, "addend": one.has_c}
            | ({"out": one.out, "scales": one.scales} if one.scales else {})
            for one in table.gemms
        ],
        "regions": {
            one.kind.name.lower(): _size(one.kind, one.size, highs) for one in table.regions
        },
    }


def _size(kind: RegionKind, size: Expr, highs: dict[str, int]) -> int | str:
    """Bytes at the largest sizes; of a KV cache, which is sized at boot, for each block."""
    if kind is RegionKind.KV_CACHE and "K" in highs:
        return f"{evaluate(size, {**highs, 'K': 1})} a block"
    return evaluate(size, highs)


def text(expr: Expr) -> str:
    """An expression as people write it."""
    if not isinstance(expr, list):
        return str(expr)
    head, left, right = expr
    if head in ("min", "max", "ceildiv"):
        return f"{head}({text(left)}, {text(right)})"
    return f"({text(left)} {head} {text(right)})"
