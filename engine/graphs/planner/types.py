"""What the planner's stages hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.engine.graphs.expr import Expr
from vcc.engine.torch_shim.triton_build import CompiledKernel

ALIGNMENT = 16
"""Bytes that generated code assumes every pointer and row to be a multiple of."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A tensor in memory: sizes, strides and offset in elements of its type."""

    dtype: str
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of a piece: a view, geometry given, of the memory called `base`.

    `base` is a placeholder or a buffer of the piece.
    """

    base: str
    geometry: Geometry


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch of a piece; `arguments` name its tensors or are sizes or numbers.

    `access` maps each pointer argument to "r", "w" or "rw".
    """

    kernel: CompiledKernel
    grid: tuple[Expr, Expr, Expr]
    arguments: Mapping[str, Expr | float | None]
    access: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scaling:
    """What makes a product one of fp8 values.

    Attributes:
        out: dtype of d, and of c, which is [n].
        scales: which there are, of `table.layout.SCALES`.
        a_scale, w_scale: tensors by name.
        launch: the kernel that computes the product, whoever else does.
    """

    out: str
    scales: str
    a_scale: str
    w_scale: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class Product:
    """d [m, n] = a [m, k] @ w [n, k]^T (+ c [m, n]); tensors by name, all of one dtype.

    Where there are scales, a and w are multiplied with them.
    """

    a: str
    w: str
    c: str | None
    d: str
    m: Expr
    n: int
    k: int
    dtype: str
    scaling: Scaling | None = None


Work = Launch | Product


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """A piece as work in order on named tensors; sizes are the piece's own symbols.

    Attributes:
        id: the piece.
        arguments: names of its placeholders, by position among the program's arguments; None for
            an output that the piece returns.
        outputs: for each output the tensor that holds it.
        tensors: every tensor by name; buffers are their own base.
        buffers: names of the memory that the piece allocates.
        work: launches and products in order.
        turned: arguments that it reads channels last; see `planner.filters`.
    """

    id: str
    arguments: tuple[str | None, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Placed]
    buffers: tuple[str, ...]
    work: tuple[Work, ...]
    turned: tuple[int, ...] = ()
