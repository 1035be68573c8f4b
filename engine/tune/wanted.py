"""Which matrix products an artifact needs, from its node table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vcc.cache.loaded import Loaded
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.layout import Family
from vcc.engine.graphs.table.types import NONE, Gemm, NodeTable, Variant
from vcc.engine.tune.families import Products, digest_of, line_of

STEP = "table/step"


def products_of(artifact: Loaded) -> Products:
    """The products of all step tables of an artifact.

    Raises:
        IntegrityError: a table is damaged.
    """
    return products_of_tables(step_tables(artifact))


def step_tables(artifact: Loaded) -> tuple[NodeTable, ...]:
    """The symbolic step tables of an artifact; none for one without."""
    names = sorted(name for name in artifact.manifest.blobs if name.startswith(STEP))
    return tuple(decode(artifact.read(name)) for name in names)


def products_of_tables(tables: Sequence[NodeTable]) -> Products:
    """The products of node tables."""
    rows = (row for table in tables for row in _rows(table))
    return Products.joined(rows, variants_digest(tables))


def _rows(table: NodeTable) -> Iterator[tuple[Family, int, bool]]:
    highs = {symbol.name: symbol.high for symbol in table.symbols}
    for one in table.gemms:
        yield one.family, most_rows(one, highs), not isinstance(one.m, int)


def most_rows(gemm: Gemm, highs: dict[str, int]) -> int:
    """What the rows of a product never exceed, which may not be those of the largest sizes."""
    from vcc.engine.graphs.expr import most

    return most(gemm.m, highs)


def variants_digest(tables: Sequence[NodeTable]) -> str:
    """What names the Triton kernels of node tables."""
    return digest_of(_line(table, variant) for table in tables for variant in table.variants)


def _line(table: NodeTable, variant: Variant) -> str:
    kernels = (variant.kernel, variant.reduce_kernel)
    used = [table.kernels[index] for index in kernels if index != NONE]
    types = (variant.dtype, variant.has_c, variant.out, variant.scales)
    return line_of(
        (
            variant.n,
            variant.k,
            *types,
            variant.max_rows,
            variant.tile_rows,
            variant.tile_n,
            variant.split_k,
        ),
        ((one.cubin, one.function, one.block, one.shared) for one in used),
    )
