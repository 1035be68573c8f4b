"""Launches of the product of fp8 values, known as products: the GEMM store may have them too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.types import Launch, Product, Scaling
from vcc.engine.graphs.table.layout import FP8, SCALE_BLOCK, VARIANT_PARAM_BYTES
from vcc.engine.graphs.table.types import NONE, Variant
from vcc.engine.ops.triton.scaled import SPREAD_LANES, scaled_linear, spread_scales
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.torch_shim.triton_build import CompiledKernel

PARAMETERS = ("x", "weight", "x_scale", "w_scale", "bias", "out", "rows")
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("x", "weight"), "*fp8e4nv"),
    **dict.fromkeys(("x_scale", "w_scale"), "*fp32"),
    "rows": "i32",
}
OUTS: Mapping[str, str] = {"*fp32": "float32", "*fp16": "float16", "*bf16": "bfloat16"}

FORMS: Mapping[tuple[int, int], str] = {(0, 1): "tensor", (1, 0): "rows", (0, 0): "mixed"}
"""Scales by MOVING and PARTS of the kernel; with MOVING 2 they are of blocks."""

CONSTANTS = (
    *("COLUMNS", "DEPTH", "MOVING", "PARTS", "HAS_BIAS", "BLOCK", "LEAST", "LEAST_COLUMNS"),
    *("FEW", "FEW_COLUMNS", "TILE_ROWS", "TILE_COLUMNS"),
)

BLOCKS = "blocks"

SPREAD = KernelSpec(
    spread_scales,
    (("scales", "*fp32"), ("spread", "*fp32"), *((n, "i32") for n in ("rows", "across", "lead"))),
    {"LANES": SPREAD_LANES},
    frozenset({"spread"}),
    num_stages=1,
)
"""Writes scales of blocks for stored products of more rows than a step has."""


def as_product(launch: Launch) -> Product | None:
    """The product that a launch computes; None where it is another one, or of a form of its own.

    A weight of several ranges that have a scale each stays a launch, and so does a bias of another
    type than the result.
    """
    kernel, known = launch.kernel, launch.kernel.source.constants
    if not _is_ours(kernel) or any(name not in known for name in CONSTANTS):
        return None
    kinds, sizes = dict(kernel.parameters), {name: _number(known[name]) for name in CONSTANTS}
    scales = _scales(sizes)
    if not scales or kinds["out"] not in OUTS:
        return None
    if sizes["HAS_BIAS"] and kinds["bias"] != kinds["out"]:
        return None
    given: Any = launch.arguments
    rows: Expr = given["rows"]
    scaling = Scaling(OUTS[kinds["out"]], scales, given["x_scale"], given["w_scale"], launch)
    bias = given["bias"] if sizes["HAS_BIAS"] else None
    names = (given["x"], given["weight"], bias, given["out"])
    return Product(*names, rows, sizes["COLUMNS"], sizes["DEPTH"], FP8, scaling)


def variants_of(
    kernel: CompiledKernel, index: int, product: tuple[Any, ...], spread: int = NONE
) -> tuple[Variant, ...]:
    """The kernel's ways as variants of a table: for the least rows, for few, and for any number.

    Args:
        kernel: of `as_product`.
        index: of it in the table.
        product: its family.
        spread: index of the kernel of SPREAD, where scales are of blocks.
    """
    n, k, dtype, has_c, out, scales = product
    known = {name: _number(kernel.source.constants[name]) for name in CONSTANTS}
    ways = (
        *((known[way], known[way], known[f"{way}_COLUMNS"]) for way in ("LEAST", "FEW")),
        (0, known["TILE_ROWS"], known["TILE_COLUMNS"]),
    )
    return tuple(
        Variant(
            *(n, k, dtype, index, rows, columns),
            max_rows=most,
            has_c=has_c,
            out=out,
            scales=scales,
            reduce_kernel=spread,
        )
        for most, rows, columns in ways
    )


def _is_ours(kernel: CompiledKernel) -> bool:
    kinds = dict(kernel.parameters)
    return (
        kernel.function == scaled_linear.fn.__name__
        and tuple(kinds) == PARAMETERS
        and all(kinds[name] == kind for name, kind in KINDS.items())
        and kernel.param_bytes == VARIANT_PARAM_BYTES
    )


def _scales(sizes: Mapping[str, int]) -> str:
    if sizes["MOVING"] == 2:
        return BLOCKS if sizes["BLOCK"] == SCALE_BLOCK else ""
    return FORMS.get((sizes["MOVING"], sizes["PARTS"]), "")


def _number(value: Any) -> int:
    return int(value)
