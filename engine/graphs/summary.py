"""What a node table holds, at given sizes: segments, launches, grids, products, regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vcc.cache.errors import UsageError
from vcc.engine.graphs.expr import evaluate, evaluate_all
from vcc.engine.graphs.table.layout import Family
from vcc.engine.graphs.table.types import (
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Role,
    When,
)
from vcc.engine.graphs.table.variants import variant_for


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node: what it is, its grid where it has one, and the regions it touches."""

    index: int
    segment: int
    kind: str
    what: str
    when: str
    grid: tuple[int, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """A run of nodes: its kind and name, and how many nodes it has."""

    kind: str
    name: str
    nodes: int


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A kernel and how often a step launches it."""

    function: str
    cubin: str
    launches: int
    threads: int
    shared: int
    param_bytes: int


@dataclass(frozen=True, slots=True)
class GemmLine:
    """A matrix product shape: rows at these sizes, how often, and the kernel that serves it."""

    rows: int
    n: int
    k: int
    dtype: str
    adds: bool
    out: str
    scales: str
    count: int
    route: str


@dataclass(frozen=True, slots=True)
class RegionLine:
    """A region and its bytes at these sizes."""

    kind: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorLine:
    """Named tensors of one role: how many, and their bytes at these sizes."""

    role: str
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A table at given sizes; `symbols` are (name, low, high)."""

    sizes: Mapping[str, int]
    symbols: tuple[tuple[str, int, int], ...]
    segments: tuple[SegmentLine, ...]
    nodes: tuple[NodeLine, ...]
    kernels: tuple[KernelLine, ...]
    gemms: tuple[GemmLine, ...]
    regions: tuple[RegionLine, ...]
    tensors: tuple[TensorLine, ...]


def sizes_of(table: NodeTable, **asked: int | None) -> dict[str, int]:
    """A size for every symbol: the one asked for, else 1 or the lowest.

    Raises:
        UsageError: a size outside its range, naming the range.
    """
    sizes = {}
    for symbol in table.symbols:
        size = asked.get(symbol.name)
        if size is not None and not symbol.low <= size <= symbol.high:
            raise UsageError(
                f"{symbol.name} = {size} is outside the table's range",
                f"it was built for {symbol.low} to {symbol.high}",
            )
        sizes[symbol.name] = max(symbol.low, 1) if size is None else size
    return sizes


def summarise(table: NodeTable, sizes: Mapping[str, int]) -> Summary:
    """Everything `vcc inspect graph` shows.

    Args:
        table: the table.
        sizes: of every symbol, see `sizes_of`. A step whose tokens equal its sequences is taken
            as pure decode; nodes of other steps are left out.
    """
    nodes = tuple(_nodes(table, sizes))
    return Summary(
        sizes=dict(sizes),
        symbols=tuple((one.name, one.low, one.high) for one in table.symbols),
        segments=tuple(SegmentLine(one.kind.name, one.name, one.nodes) for one in table.segments),
        nodes=nodes,
        kernels=_kernels(table, nodes),
        gemms=_gemms(table, nodes, sizes),
        regions=tuple(
            RegionLine(one.kind.name, one.index, evaluate(one.size, sizes)) for one in table.regions
        ),
        tensors=_tensors(table),
    )


def _nodes(table: NodeTable, sizes: Mapping[str, int]) -> Iterator[NodeLine]:
    uniform = sizes.get("T") == sizes.get("B")
    runs = (When.ALWAYS, When.ADAPTED, When.UNIFORM if uniform else When.MIXED)
    first = 0
    for number, segment in enumerate(table.segments):
        for index in range(first, first + segment.nodes):
            node = table.nodes[index]
            if node.when in runs:
                yield _node(table, index, number, node, sizes)
        first += segment.nodes


def _node(
    table: NodeTable, index: int, segment: int, node: Node, sizes: Mapping[str, int]
) -> NodeLine:
    return NodeLine(
        index=index,
        segment=segment,
        kind=node.kind.name,
        what=title(table, node),
        when=node.when.name,
        grid=evaluate_all(node.grid, sizes),
        regions=tuple(_region(table, param) for param in _pointers(node)),
    )


def title(table: NodeTable, node: Node) -> str:
    """What a node does, in a few words."""
    if node.kind is NodeKind.KERNEL:
        return table.kernels[node.target].function
    if node.kind is NodeKind.GEMM:
        gemm = table.gemms[node.target]
        scaled = f", fp8 by {gemm.scales}" if gemm.scales else ""
        return f"[rows, {gemm.k}] x [{gemm.k}, {gemm.n}]{' + c' if gemm.has_c else ''}{scaled}"
    return node.kind.name.lower()


def _pointers(node: Node) -> list[Param]:
    return [param for param in node.params if param.kind is ParamKind.POINTER]


def _region(table: NodeTable, param: Param) -> str:
    access = {1: "reads", 2: "writes", 3: "updates"}[param.access]
    return f"{access} {table.regions[param.region].kind.name}"


def _kernels(table: NodeTable, nodes: tuple[NodeLine, ...]) -> tuple[KernelLine, ...]:
    counts = Counter(
        table.nodes[line.index].target for line in nodes if line.kind == NodeKind.KERNEL.name
    )
    found = []
    for index, kernel in enumerate(table.kernels):
        x, y, z = kernel.block
        launches = counts.get(index, 0)
        found.append(
            KernelLine(
                kernel.function,
                kernel.cubin,
                launches,
                x * y * z,
                kernel.shared,
                kernel.param_bytes,
            )
        )
    return tuple(sorted(found, key=lambda line: (-line.launches, line.function, line.cubin)))


def _gemms(
    table: NodeTable, nodes: tuple[NodeLine, ...], sizes: Mapping[str, int]
) -> tuple[GemmLine, ...]:
    counts: Counter[tuple[int, Family]] = Counter()
    for line in nodes:
        if line.kind == NodeKind.GEMM.name:
            gemm = table.gemms[table.nodes[line.index].target]
            rows = evaluate(gemm.m, sizes)
            counts[rows, gemm.family] += 1
    return tuple(
        GemmLine(rows, *family, count, _route(table, rows, family))
        for (rows, family), count in sorted(counts.items())
    )


def _route(table: NodeTable, rows: int, family: Family) -> str:
    found = variant_for(table, family, rows)
    if found is None:
        return "no Triton kernel"
    tiles = f"tile {found.tile_rows}x{found.tile_n}"
    split = f", k in {found.split_k} parts" if found.split_k > 1 else ""
    return f"{table.kernels[found.kernel].function}, {tiles}{split}"


def _tensors(table: NodeTable) -> tuple[TensorLine, ...]:
    found: dict[Role, list[str]] = {}
    for tensor in table.tensors:
        found.setdefault(tensor.role, []).append(tensor.name)
    return tuple(
        TensorLine(role.name, len(names), tuple(names)) for role, names in sorted(found.items())
    )
