"""Node tables for tests: one of every kind of record, and random ones that are all valid."""

from __future__ import annotations

from hypothesis import strategies as st

from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.table.layout import DTYPE_NAMES
from vcc.engine.graphs.table.types import (
    NONE,
    READ,
    WRITE,
    Edge,
    Gemm,
    Kernel,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Role,
    Segment,
    SegmentKind,
    Symbol,
    TableTensor,
    Variant,
    When,
)

SYMBOLS = (Symbol("T", 1, 512), Symbol("B", 1, 64), Symbol("K", 8, 4096))
DIGESTS = tuple(f"{index:064x}" for index in (1, 2, 3))
WEIGHTS, CACHE, IO, WORKSPACE, SCRATCH = range(5)
POINTER, BOTH = ParamKind.POINTER, READ | WRITE


def pointer(offset: int, region: int, at: Expr = 0, access: int = BOTH) -> Param:
    return Param(POINTER, access, offset, region, at)


def kernel(param_bytes: int, function: str = "kernel", **more: object) -> Kernel:
    return Kernel(DIGESTS[0], function, (128, 1, 1), 1024, param_bytes, **more)  # type: ignore[arg-type]


def regions() -> tuple[Region, ...]:
    return (
        Region(RegionKind.WEIGHTS, 65536),
        Region(RegionKind.KV_CACHE, ["*", "K", 2048]),
        Region(RegionKind.IO, ["*", ["+", "T", "B"], 1024]),
        Region(RegionKind.WORKSPACE, 1 << 20),
        Region(RegionKind.SCRATCH, ["*", ["max", "T", 16], 4096]),
    )


def tensors() -> tuple[TableTensor, ...]:
    return (
        TableTensor("input_ids", "input_ids", Role.INPUT, "int32", IO, 0, ("T",)),
        TableTensor("w", "model.w", Role.WEIGHT, "bfloat16", WEIGHTS, 256, (64, 64)),
        TableTensor("scale", "scale", Role.CONSTANT, "float32", WEIGHTS, 0, ()),
        TableTensor("kv", "kv.0", Role.CACHE, "bfloat16", CACHE, ["*", "K", 1024], ("K", 512)),
        TableTensor("logits", "größe", Role.OUTPUT, "float32", IO, ["*", "T", 512], ("B", 256)),
    )


def fixed_nodes() -> tuple[Node, ...]:
    gemm = (
        pointer(0, WORKSPACE, 0, READ),
        pointer(8, WEIGHTS, 256, READ),
        pointer(16, WEIGHTS, 0, READ),
        pointer(24, IO, ["*", "T", 512], WRITE),
    )
    scales = (pointer(32, WORKSPACE, 65536, READ), pointer(40, WEIGHTS, 0, READ))
    numbers = ((ParamKind.I32, 8, 255), (ParamKind.I32, 12, 4), (ParamKind.I64, 16, "T"))
    numbers += ((ParamKind.I64, 24, 2), (ParamKind.I64, 32, ["*", "T", 8]))
    fill = tuple(Param(kind, 0, offset, NONE, value) for kind, offset, value in numbers)
    copy = (pointer(0, WORKSPACE, 0, WRITE), pointer(8, IO, 0, READ))
    return (
        Node(NodeKind.GEMM, target=0, params=(gemm[0], gemm[1], gemm[3])),
        Node(NodeKind.GEMM, target=1, params=gemm),
        Node(NodeKind.GEMM, target=2, params=(*gemm, *scales)),
        Node(NodeKind.GEMM, target=3, params=(gemm[0], gemm[1], gemm[3], *scales)),
        Node(NodeKind.MEMSET, params=(pointer(0, WORKSPACE, 0, WRITE), *fill)),
        Node(NodeKind.MEMCPY, params=(*copy, Param(ParamKind.I64, 0, 16, NONE, ["*", "T", 4]))),
        Node(NodeKind.EMPTY),
    )


def launches() -> tuple[Node, ...]:
    params = (
        Param(ParamKind.BYTES, 0, 0, NONE, bytes(range(48))),
        pointer(0, WEIGHTS, 256, READ),
        pointer(8, CACHE, ["*", "K", 1024]),
        Param(ParamKind.I32, 0, 16, NONE, ["%", "T", 7]),
        Param(ParamKind.I64, 0, 24, NONE, ["ceildiv", ["min", "T", "B"], 3]),
        Param(ParamKind.F32, 0, 32, NONE, 0xBF800000),
        Param(ParamKind.F64, 0, 40, NONE, 0xBFF0000000000000),
        Param(ParamKind.NULL, 0, 48),
    )
    grid = (["ceildiv", "T", 64], ["//", 64, 2], 1)
    return (
        Node(NodeKind.KERNEL, When.UNIFORM, 0, grid, params),
        Node(NodeKind.KERNEL, When.MIXED, 0, grid, params[:2]),
    )


def every_kind() -> NodeTable:
    """A table with every kind of record but edges."""
    attribute = (4, bytes((2, 0, 0, 0, 1, 0, 0, 0, 1)) + bytes(55))
    return NodeTable(
        symbols=SYMBOLS,
        regions=regions(),
        tensors=tensors(),
        cubins=((DIGESTS[0], 9000), (DIGESTS[1], 7)),
        kernels=(
            kernel(56, attributes=(attribute,), carveout=100, flags=1),
            kernel(72, "gemm"),
            kernel(48, "reduce"),
        ),
        nodes=(*launches(), *fixed_nodes()),
        gemms=(
            Gemm("T", 64, 64, "bfloat16"),
            Gemm("B", 64, 64, "bfloat16", True),
            Gemm("T", 64, 64, "float8_e4m3fn", True, "bfloat16", "rows"),
            Gemm("T", 64, 64, "float8_e4m3fn", False, "float16", "tensor"),
        ),
        variants=(
            Variant(64, 64, "bfloat16", 1, 16, 64, split_k=4, max_rows=16, reduce_kernel=2),
            Variant(64, 0, "bfloat16", 1, 64, 64, has_c=True),
            Variant(64, 64, "float8_e4m3fn", 1, 64, 64, has_c=True, out="bfloat16", scales="rows"),
        ),
        segments=(
            Segment(SegmentKind.ADVANCE, "advance", 1),
            Segment(SegmentKind.PIECE, "0123456789abcdef", 6),
            Segment(SegmentKind.OP, "vcc::paged_attention", 1),
            Segment(SegmentKind.SAMPLE, "sample", 1),
        ),
    )


def recorded() -> NodeTable:
    """A table with edges, and with one size only."""
    nodes = tuple(
        Node(NodeKind.KERNEL, target=0, grid=(index + 1, 1, 1), params=(pointer(0, 0, index),))
        for index in range(4)
    )
    return NodeTable(
        symbols=(Symbol("T", 8, 8),),
        regions=(Region(RegionKind.WORKSPACE, 4096), Region(RegionKind.PEER, 512, index=3)),
        cubins=((DIGESTS[0], 1),),
        kernels=(kernel(16),),
        nodes=nodes,
        segments=(Segment(SegmentKind.PIECE, "graph", 4),),
        edges=(Edge(0, 1), Edge(0, 2, 1, 1, 0), Edge(1, 3), Edge(2, 3)),
    )


LEAVES = st.sampled_from(["T", "B"]) | st.integers(0, 64)


def _operations(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    safe = st.tuples(st.sampled_from(["+", "*", "min", "max"]), parts, parts)
    divided = st.tuples(st.sampled_from(["//", "%", "ceildiv"]), parts, st.integers(1, 64))
    return (safe | divided).map(list)


EXPRS: st.SearchStrategy[Expr] = st.recursive(LEAVES, _operations, max_leaves=4)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
HUGE = 1 << 40
"""A region that holds what `EXPRS` can reach: 512 to the power of four."""

SCALARS = {
    ParamKind.I32: EXPRS,
    ParamKind.I64: EXPRS,
    ParamKind.F32: st.integers(0, 2**32 - 1),
    ParamKind.F64: st.integers(0, 2**64 - 1),
    ParamKind.BYTES: st.binary(min_size=1, max_size=16),
    ParamKind.NULL: st.just(0),
}


@st.composite
def params(draw: st.DrawFn) -> Param:
    offset, kind = draw(st.integers(0, 48)), draw(st.sampled_from(ParamKind))
    if kind is POINTER:
        return pointer(offset, draw(st.integers(0, 1)), draw(EXPRS), draw(st.integers(1, 3)))
    return Param(kind, 0, offset, NONE, draw(SCALARS[kind]))


def _tensor(name: str, dtype: str, shape: list[Expr], role: Role) -> TableTensor:
    return TableTensor(name, name[::-1], role, dtype, 1, 64, tuple(shape))


TENSORS = st.builds(
    _tensor,
    NAMES,
    st.sampled_from(DTYPE_NAMES),
    st.lists(EXPRS, max_size=1),
    st.sampled_from([Role.INPUT, Role.OUTPUT, Role.STATE]),
)
KERNEL_NODES = st.builds(
    Node,
    kind=st.just(NodeKind.KERNEL),
    when=st.sampled_from(When),
    target=st.just(0),
    grid=st.tuples(EXPRS, EXPRS, EXPRS),
    params=st.lists(params(), max_size=4).map(tuple),
)


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    """Valid tables of a few records, with random expressions and texts."""
    nodes = tuple(draw(st.lists(KERNEL_NODES, max_size=3)))
    return NodeTable(
        symbols=SYMBOLS[:2],
        regions=(Region(RegionKind.WORKSPACE, HUGE), Region(RegionKind.IO, 16 * HUGE)),
        tensors=tuple(draw(st.lists(TENSORS, max_size=3, unique_by=lambda t: t.name))),
        cubins=((DIGESTS[0], draw(st.integers(1, 1 << 20))),),
        kernels=(kernel(64, draw(NAMES)),),
        nodes=nodes,
        gemms=tuple(
            draw(st.lists(st.builds(Gemm, EXPRS, st.just(8), st.just(8), st.just("float16"))))
        ),
        segments=tuple(Segment(SegmentKind.OP, draw(NAMES), 1) for _ in nodes),
    )
