"""Which matrix products an artifact needs, from its node table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcc.cache.digest import Digest
from vcc.cache.loaded import Loaded
from vcc.engine.graphs.table.decode import decode
from vcc.engine.graphs.table.types import NONE, Gemm, NodeTable, Variant
from vcc.engine.tune.shapes import DTYPES, GemmShape

STEP = "table/step"

BUCKETS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Row counts of prefill that are recorded: a step takes the smallest that holds it."""

Family = tuple[int, int, str, bool]
"""n, k, dtype, has_c: a product apart from its rows."""


@dataclass(frozen=True, slots=True)
class Products:
    """The products of an artifact.

    Attributes:
        gemms: family -> the most rows that its expression can give.
        variants: digest of the Triton kernels that may compute them.
    """

    gemms: dict[Family, int]
    variants: str

    def has(self, shape: GemmShape) -> bool:
        """Whether a product is one of these."""
        family = (shape.n, shape.k, shape.dtype, shape.has_c)
        return shape.m <= self.gemms.get(family, 0)

    def shapes(self, rows: Iterable[int]) -> tuple[GemmShape, ...]:
        """Every product at every row count that it can have, sorted."""
        counts = sorted(set(rows))
        return tuple(
            GemmShape(m, *family)
            for family, most in sorted(self.gemms.items())
            for m in counts
            if m <= most and family[2] in DTYPES
        )


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
    gemms: dict[Family, int] = {}
    for table in tables:
        highs = {symbol.name: symbol.high for symbol in table.symbols}
        for gemm in table.gemms:
            family = (gemm.n, gemm.k, gemm.dtype, gemm.has_c)
            gemms[family] = max(gemms.get(family, 0), most_rows(gemm, highs))
    return Products(gemms, variants_digest(tables))


def most_rows(gemm: Gemm, highs: dict[str, int]) -> int:
    """The rows of a product when every size is at its largest."""
    from vcc.engine.graphs.expr import evaluate

    return evaluate(gemm.m, highs)


def variants_digest(tables: Sequence[NodeTable]) -> str:
    """What names the Triton kernels of node tables; sizes and weights of a model do not enter."""
    lines = sorted({_line(table, variant) for table in tables for variant in table.variants})
    return Digest.of("\n".join(lines).encode()).hex


def _line(table: NodeTable, variant: Variant) -> str:
    kernels = (variant.kernel, variant.reduce_kernel)
    used = [table.kernels[index] for index in kernels if index != NONE]
    names = [f"{kernel.cubin} {kernel.function} {kernel.block} {kernel.shared}" for kernel in used]
    limits = (variant.n, variant.k, variant.dtype, variant.has_c, variant.max_rows)
    return " ".join(map(str, (*limits, variant.tile_rows, variant.tile_n, variant.split_k, *names)))


def rows_of(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """The row counts that are worth recording: those of graphs, and buckets of prefill.

    Args:
        sizes: rows of the graphs that exist at boot.
        most: the largest step.
    """
    buckets = [rows for rows in BUCKETS if rows < most]
    return tuple(sorted({*sizes, *buckets, most}))
