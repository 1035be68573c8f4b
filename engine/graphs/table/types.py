"""The node table in Python: what runs in which order on which memory, for all sizes of a step.

One table is one step of a model (or one recorded graph, or one matrix product of the GEMM store).
Sizes, offsets, grids and integer arguments are expressions of `engine.graphs.expr` in its symbols,
written with two operands an operation. ``docs/format.md`` has the binary form.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.layout import Family

NONE = 0xFFFF_FFFF
"""The record index that stands for "no record"."""

READ, WRITE = 1, 2
"""Bits of a pointer's access."""

NON_PORTABLE_CLUSTER = 1
"""Kernel flag: the cluster is larger than the portable eight blocks."""


class RegionKind(IntEnum):
    """The memory a region stands for when a table is played."""

    WEIGHTS = 0
    KV_CACHE = 1
    IO = 2
    WORKSPACE = 3
    SCRATCH = 4
    PEER = 5
    OPERAND = 6


class Role(IntEnum):
    """What a named tensor is to the step."""

    INPUT = 0
    OUTPUT = 1
    WEIGHT = 2
    CONSTANT = 3
    CACHE = 4
    STATE = 5


class NodeKind(IntEnum):
    """What a node does."""

    KERNEL = 0
    GEMM = 1
    MEMSET = 2
    MEMCPY = 3
    EMPTY = 4


class When(IntEnum):
    """The steps in which a node runs: pure decode (one token a sequence), or any other.

    ADAPTED nodes run in steps in which a row has an adapter; without them the step has none.
    """

    ALWAYS = 0
    UNIFORM = 1
    MIXED = 2
    ADAPTED = 3


class ParamKind(IntEnum):
    """How a parameter's bytes come about."""

    POINTER = 0
    I32 = 1
    I64 = 2
    NULL = 3
    BYTES = 4
    F32 = 5
    F64 = 6


class SegmentKind(IntEnum):
    """What a run of nodes belongs to."""

    PIECE = 0
    OP = 1
    ADVANCE = 2
    SAMPLE = 3


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size of the step and its range, both ends included."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that the player provides: `size` bytes at a multiple of `alignment`.

    `index` tells the peers of a PEER region apart, and the operands (0 a, 1 w, 2 c, 3 d,
    4 workspace, 5 scales of a, 6 scales of w) of an OPERAND region; it is 0 otherwise.
    """

    kind: RegionKind
    size: Expr
    index: int = 0
    alignment: int = 256


@dataclass(frozen=True, slots=True)
class TableTensor:
    """A named dense row-major tensor at byte `offset` of a region (an index into `regions`).

    `target` is the parameter or constant name of a weight or constant, else the own name.
    """

    name: str
    target: str
    role: Role
    dtype: str
    region: int
    offset: Expr
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of a cubin and how it is launched.

    Args:
        cubin: the SHA-256 in hex of one of the table's cubins.
        function: its mangled name.
        block: threads in x, y, z.
        shared: dynamic shared memory, bytes.
        param_bytes: size of its parameter block.
        attributes: launch attributes, (CUlaunchAttributeID, the 64 bytes of its value).
        carveout: preferred shared memory carve-out in percent, -1 for the driver's choice.
        flags: `NON_PORTABLE_CLUSTER`.
    """

    cubin: str
    function: str
    block: tuple[int, int, int]
    shared: int
    param_bytes: int
    attributes: tuple[tuple[int, bytes], ...] = ()
    carveout: int = -1
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Param:
    """One write into a node's parameter block, at byte `offset`.

    `value` is the byte offset in `region` of a POINTER, the number of an I32 or I64, the bits
    (unsigned) of an F32 or F64, the bytes of BYTES, 0 for NULL. `access` (`READ`, `WRITE` or both)
    belongs to pointers and is 0 otherwise.
    """

    kind: ParamKind
    access: int
    offset: int
    region: int = NONE
    value: Expr = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One unit of work: `target` is a kernel or gemm by index, NONE for other kinds.

    Only kernels have a grid, the others have the empty tuple.
    """

    kind: NodeKind
    when: When = When.ALWAYS
    target: int = NONE
    grid: tuple[Expr, ...] = ()
    params: tuple[Param, ...] = ()


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product d[m,n] = a[m,k] @ w[n,k]^T (+ c[m,n]), all of one dtype.

    A scaled one has fp8 values in a and w, scales in fp32 as `scales` says (`layout.SCALES`), and
    c[n], which every row gets, and d in `out`. Without scales `out` is empty.
    """

    m: Expr
    n: int
    k: int
    dtype: str
    has_c: bool = False
    out: str = ""
    scales: str = ""

    @property
    def family(self) -> Family:
        """What it is apart from its rows."""
        return self.n, self.k, self.dtype, self.has_c, self.out, self.scales


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel for matrix products of shape n, k and at most `max_rows` rows (0: any).

    `k` 0 means any. `reduce_kernel` sums the partial products where `split_k` is above 1; where
    scales are of blocks it spreads those of a for a stored product of more rows. `out` and
    `scales` are those of `Gemm`.
    """

    n: int
    k: int
    dtype: str
    kernel: int
    tile_rows: int
    tile_n: int
    split_k: int = 1
    max_rows: int = 0
    reduce_kernel: int = NONE
    has_c: bool = False
    out: str = ""
    scales: str = ""

    def fits(self, family: Family, rows: int) -> bool:
        """Whether it computes a product of so many rows; of those that do the first is taken."""
        n, k, *types = family
        own = [self.dtype, self.has_c, self.out, self.scales]
        sizes = self.n == n and self.k in (0, k) and (not self.max_rows or rows <= self.max_rows)
        return sizes and own == types


@dataclass(frozen=True, slots=True)
class Segment:
    """The next `nodes` nodes: a piece by identity, an op by name, the loop's head or tail."""

    kind: SegmentKind
    name: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` waits for `source`, with the type and ports of CUgraphEdgeData."""

    source: int
    target: int
    type: int = 0
    source_port: int = 0
    target_port: int = 0


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A whole table. Without edges the nodes run one after another.

    `cubins` are pairs of SHA-256 in hex and size in bytes.
    """

    symbols: tuple[Symbol, ...] = ()
    regions: tuple[Region, ...] = ()
    tensors: tuple[TableTensor, ...] = ()
    cubins: tuple[tuple[str, int], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    nodes: tuple[Node, ...] = ()
    gemms: tuple[Gemm, ...] = ()
    variants: tuple[Variant, ...] = ()
    segments: tuple[Segment, ...] = ()
    edges: tuple[Edge, ...] = ()
