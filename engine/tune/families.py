"""The matrix products of a step by family, and which rows of them are worth recording.

Light: a boot imports this. `wanted` makes the same of the node tables of an artifact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from vcc.cache.digest import Digest
from vcc.engine.graphs.table.layout import DTYPE_NAMES, SCALES, Family
from vcc.engine.tune.index import DTYPES, Product
from vcc.engine.tune.storable import recorded_rows, why_not

if TYPE_CHECKING:
    from vcc.engine.tune.shapes import GemmShape, Refused

BUCKETS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Row counts of prefill that are recorded: a step takes the smallest that holds it."""


class Products(Struct, frozen=True):
    """The products of an artifact.

    Attributes:
        gemms: family -> the most rows that its expression can give.
        variants: digest of the Triton kernels that may compute them.
        ends: family -> the most rows of each of its products, ascending. A step takes no entry
            beyond what its table's product can have, so these rows are worth recording too.
        fixed: families whose products have the same rows at every step, which `ends` has.
    """

    gemms: dict[Family, int]
    variants: str
    ends: dict[Family, tuple[int, ...]] = {}
    fixed: frozenset[Family] = frozenset()

    @classmethod
    def told(cls, *texts: str) -> Products:
        """From what players say of the tables of an artifact (`vcc_player_products`)."""
        found: list[dict[str, Any]] = [json.loads(text) for text in texts]
        lines = [_told_line(one) for table in found for one in table["variants"]]
        rows = [
            ((n, k, *_told_types(*types)), most, True)
            for table in found
            for n, k, *types, most in table["gemms"]
        ]
        return cls.joined(rows, digest_of(lines))

    @classmethod
    def joined(cls, rows: Iterable[tuple[Family, int, bool]], variants: str) -> Products:
        """Those of one table or several.

        Args:
            rows: of each product its family, its most rows, and whether other steps have fewer.
            variants: digest of the kernels.
        """
        ends: dict[Family, set[int]] = {}
        varying = set()
        for family, most, varies in rows:
            ends.setdefault(family, set()).add(most)
            varying |= {family} if varies else set()
        return cls(
            {family: max(found) for family, found in ends.items()},
            variants,
            {family: tuple(sorted(found)) for family, found in ends.items()},
            frozenset(ends.keys() - varying),
        )

    def has(self, shape: GemmShape) -> bool:
        """Whether a product is one of these."""
        return shape.m <= self.gemms.get(astuple(shape)[1:], 0)

    def rows(self, counts: Iterable[int], *, alone: bool = False) -> list[Product]:
        """Every product at every row count that it can have, sorted by family.

        Args:
            counts: of rows.
            alone: only these, and not the most rows of each product besides.
        """
        asked = frozenset(counts)
        return [
            (m, *family)
            for family, most in sorted(self.gemms.items())
            if family[2] in DTYPES and not why_not(*family)
            for m in dict.fromkeys(
                recorded_rows(one, family[5]) for one in self._worth(family, asked, alone)
            )
            if m <= most
        ]

    def _worth(self, family: Family, counts: frozenset[int], alone: bool) -> list[int]:
        """The rows of a family that are worth recording, ascending."""
        own = frozenset(self.ends.get(family, ()))
        if alone:
            return sorted(counts & own if family in self.fixed else counts)
        return sorted(own if family in self.fixed else counts | own)

    def unstorable(self) -> tuple[Refused, ...]:
        """The products that no recording holds, at the most rows they have, and why."""
        from vcc.engine.tune.shapes import GemmShape, Refused

        told = ((family, most, why_not(*family)) for family, most in sorted(self.gemms.items()))
        return tuple(Refused(GemmShape(most, *family), why) for family, most, why in told if why)

    def shapes(self, counts: Iterable[int], *, alone: bool = False) -> tuple[GemmShape, ...]:
        """As `rows`, as shapes."""
        from vcc.engine.tune.shapes import GemmShape  # a boot does not pay for the import

        return tuple(GemmShape(*row) for row in self.rows(counts, alone=alone))


def digest_of(lines: Iterable[str]) -> str:
    """What names the Triton kernels of node tables; sizes and weights of a model do not enter."""
    return Digest.of("\n".join(sorted(set(lines))).encode()).hex


def line_of(limits: Sequence[Any], kernels: Iterable[Sequence[Any]]) -> str:
    """A variant as text.

    Args:
        limits: n, k, dtype, has_c, out, scales, most rows, rows and columns of a tile, split of k.
        kernels: cubin, function, threads, shared bytes of each.
    """
    names = (" ".join(map(str, kernel)) for kernel in kernels)
    return " ".join((*map(str, limits), *names))


def _told_line(told: Sequence[Any]) -> str:
    n, k, dtype, flags, out, scales, *others, kernels = told
    limits = (n, k, *_told_types(dtype, flags, out, scales), *others)
    return line_of(limits, ((cubin, name, tuple(b), shared) for cubin, name, b, shared in kernels))


def _told_types(dtype: int, flags: int, out: int, scales: int) -> tuple[str, bool, str, str]:
    return DTYPE_NAMES[dtype], bool(flags), DTYPE_NAMES[out] if scales else "", SCALES[scales]


def rows_of(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """The row counts that are worth recording: those of graphs, and buckets of prefill.

    Args:
        sizes: rows of the graphs that exist at boot.
        most: the largest step.
    """
    buckets = [rows for rows in BUCKETS if rows < most]
    return tuple(sorted({*sizes, *buckets, most}))
