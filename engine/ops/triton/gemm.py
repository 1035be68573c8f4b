"""The Triton route of a table's matrix products: kernels by shape, in order of preference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcc.engine.ops.triton.linear import linear, reduce_splits
from vcc.engine.ops.triton.linear_configs import ODD, Tile, splits_for, tiles_for
from vcc.engine.ops.triton.specs import POINTER_TYPES, KernelSpec
from vcc.engine.torch_shim.profiles import DeviceProfile

REDUCE_LANES = 1024
"""Columns of a row that a program of the reduction adds up; the player knows this number."""

BAND = 8
"""Tiles of rows that share weights in the L2 cache."""

POINTERS = ("a", "w", "c", "d", "partials")


@dataclass(frozen=True, slots=True)
class GemmVariant:
    """A kernel for the products that match; in a list the first match is used.

    Attributes:
        n, k: sizes of the weight, 0 for any.
        dtype: element type.
        has_c: whether an addend is read.
        max_rows: most rows, 0 for any.
        kernel: parameters a, w, c, d, partials (pointers), rows, n, k (i32); grid
            (ceil(n / tile_n), ceil(rows / tile_rows), split_k).
        tile_rows, tile_n: of one program.
        split_k: parts of k; above 1 the kernel writes partials fp32 [split_k, rows, n] and
        reduce: adds them: parameters partials, c, d (pointers), rows, n (i32); grid
            (ceil(n / REDUCE_LANES), rows). None without a split.
    """

    n: int
    k: int
    dtype: str
    has_c: bool
    max_rows: int
    kernel: KernelSpec
    tile_rows: int
    tile_n: int
    split_k: int
    reduce: KernelSpec | None

    def matches(self, n: int, k: int, has_c: bool, rows: int) -> bool:
        """Whether it computes this product."""
        sizes = self.n in (0, n) and self.k in (0, k) and self.has_c == has_c
        return sizes and (self.max_rows == 0 or rows <= self.max_rows)


def gemm_variants(
    dtype: str, profile: DeviceProfile, gemms: Sequence[tuple[int, int, bool]] = ()
) -> tuple[GemmVariant, ...]:
    """Kernels for matrix products, the preferred first.

    Args:
        dtype: element type of all operands.
        profile: the device.
        gemms: (n, k, has_c) of the table's products. These get wide loads and a split of k to
            their size; the entries at the end take every other shape, slowly.
    """
    found = []
    for n, k, has_c in dict.fromkeys(gemms):
        if n % 16 == 0 and k % 16 == 0:
            found += [
                _variant(dtype, profile, n, k, has_c, tile) for tile in tiles_for(profile, dtype, n)
            ]
    for has_c in (False, True):
        found.append(_variant(dtype, profile, 0, 0, has_c, ODD))
    return tuple(found)


def gemm_scratch(variants: Sequence[GemmVariant], n: int, k: int, has_c: bool, rows: int) -> int:
    """Bytes of partials that a product of up to `rows` rows needs."""
    sizes = [
        4 * variant.split_k * (min(rows, variant.max_rows) if variant.max_rows else rows) * n
        for variant in _usable(variants, n, k, has_c, rows)
        if variant.split_k > 1
    ]
    return max(sizes, default=0)


def _usable(
    variants: Sequence[GemmVariant], n: int, k: int, has_c: bool, rows: int
) -> Iterator[GemmVariant]:
    """The variants that products of 1 to `rows` rows use."""
    for variant in variants:
        if variant.matches(n, k, has_c, 0):
            yield variant
            if variant.max_rows == 0 or variant.max_rows >= rows:
                return


def _variant(
    dtype: str, profile: DeviceProfile, n: int, k: int, has_c: bool, tile: Tile
) -> GemmVariant:
    parts = splits_for(tile, n, k, profile) if n else 1
    kernel = linear_spec(dtype, tile, has_c and parts == 1, parts > 1, aligned=n > 0)
    reduce = reduce_spec(dtype, parts, has_c, aligned=n > 0) if parts > 1 else None
    sizes = (tile.tile_rows, tile.tile_n, parts)
    return GemmVariant(n, k, dtype, has_c, tile.max_rows, kernel, *sizes, reduce)


def linear_spec(dtype: str, tile: Tile, has_c: bool, split: bool, *, aligned: bool) -> KernelSpec:
    """The kernel of a tile; `aligned` when n and k are multiples of 16."""
    element = POINTER_TYPES[dtype]
    types = dict.fromkeys(POINTERS, element) | {"partials": "*fp32"}
    types |= dict.fromkeys(("rows", "n", "k"), "i32")
    constants = {
        "HAS_C": has_c,
        "SPLIT": split,
        "NARROW": tile.narrow,
        "TILE_ROWS": tile.tile_rows,
        "TILE_N": tile.tile_n,
        "TILE_K": tile.tile_k,
        "BAND": BAND,
    }
    sure = (*POINTERS, "n", "k") if aligned else POINTERS
    return KernelSpec(
        linear, tuple(types.items()), constants, frozenset(sure), tile.warps, tile.stages
    )


def reduce_spec(dtype: str, parts: int, has_c: bool, *, aligned: bool) -> KernelSpec:
    """The kernel that adds `parts` partial sums."""
    element = POINTER_TYPES[dtype]
    types = {"partials": "*fp32", "c": element, "d": element, "rows": "i32", "n": "i32"}
    sure = ("partials", "c", "d", "n") if aligned else ("partials", "c", "d")
    constants = {"HAS_C": has_c, "SPLITS": parts, "LANES": REDUCE_LANES}
    return KernelSpec(reduce_splits, tuple(types.items()), constants, frozenset(sure), 4, 1)
