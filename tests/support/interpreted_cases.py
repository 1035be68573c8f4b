"""Small tables run by Triton's interpreter; prints what came of each case as JSON.

A process of its own, started with TRITON_INTERPRET=1 by tests/engine/graphs/test_interpret.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import triton
import triton.language as tl

from vcc.cache.errors import VccError
from vcc.engine.graphs.host_memory import HostMemory
from vcc.engine.graphs.interpret import Interpreter, Shape
from vcc.engine.graphs.planner.sources import KernelSource
from vcc.engine.graphs.table.types import (
    READ,
    WRITE,
    Gemm,
    Kernel,
    Node,
    NodeKind,
    NodeTable,
    Param,
    ParamKind,
    Region,
    RegionKind,
    Segment,
    SegmentKind,
    Symbol,
    When,
)

DIGEST = "a" * 64
IO, WORKSPACE = 0, 1


@triton.jit
def double(x, y, n, LANES: tl.constexpr):
    """y = 2 x for the first n elements."""
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


GENERATED = """
import triton
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton_heuristics.pointwise(size_hints=[4])
@triton.jit
def triton_poi_fused_tanh_0(x, y, n, LANES : tl.constexpr):
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    tl.device_assert((at >= 0) | ~(at < n), "index out of bounds")
    found = tl.load(x + at, mask=at < n)
    result = libdevice.tanh(found) + tl_math.exp(found) + libdevice.pow(found, found)
    tl.store(y + at, result, mask=at < n)
"""

PARAMETERS = (("x", "*fp32"), ("y", "*fp32"), ("n", "i32"))
DOUBLE = KernelSource(DIGEST, "double", __name__, "", PARAMETERS, {"LANES": 4})
TANH = replace(DOUBLE, module="", function="triton_poi_fused_tanh_0", text=GENERATED)


def pointer(offset: int, region: int, at: object, access: int) -> Param:
    return Param(ParamKind.POINTER, access, offset, region, at)


def number(offset: int, value: object, kind: ParamKind = ParamKind.I32) -> Param:
    return Param(kind, 0, offset, value=value)


def launch(x: object = 0, y: object = 0, n: object = "T", **more: object) -> Node:
    """y (bytes into WORKSPACE) = 2 x (bytes into IO)."""
    params = (pointer(0, IO, x, READ), pointer(8, WORKSPACE, y, WRITE), number(16, n))
    grid = (["ceildiv", "T", 4], 1, 1)
    return Node(NodeKind.KERNEL, target=0, **({"grid": grid, "params": params} | more))  # type: ignore[arg-type]


def table(*nodes: Node, segments: tuple[Segment, ...] = (), **more: object) -> NodeTable:
    return NodeTable(
        symbols=(Symbol("T", 1, 64),),
        regions=(
            Region(RegionKind.IO, ["*", "T", 4]),
            Region(RegionKind.WORKSPACE, ["*", "T", 64]),
        ),
        cubins=((DIGEST, 1),),
        kernels=(Kernel(DIGEST, "double", (128, 1, 1), 0, 40),),
        nodes=nodes,
        segments=segments or (Segment(SegmentKind.PIECE, "piece", len(nodes)),),
        **more,  # type: ignore[arg-type]
    )


def run(
    made: NodeTable, tokens: int = 6, source: KernelSource | None = DOUBLE, **shape: bool
) -> tuple[list[str], HostMemory]:
    """Run with IO = 1, 2, 3, ...; the names of the segments, and the memory."""
    memory = HostMemory(made, {"T": tokens})
    memory.region(IO).view(np.float32)[:] = np.arange(1, tokens + 1)
    sources = {} if source is None else {DIGEST: source}
    with tempfile.TemporaryDirectory() as folder:
        found = Interpreter(made, sources, Path(folder))
        names = [one.name for one in found.segments(memory, Shape(**({"uniform": False} | shape)))]
    return names, memory


def floats(memory: HostMemory, count: int, start: int = 0) -> list[float | None]:
    """fp32 of WORKSPACE; None for NaN."""
    values = memory.region(WORKSPACE).view(np.float32)[start : start + count].tolist()
    return [None if value != value else value for value in values]


def kernel() -> object:
    return floats(run(table(launch()))[1], 8)


def offsets() -> object:
    return floats(run(table(launch(x=8, y=["*", "T", 4], n=2)))[1], 4, start=6)


def generated() -> object:
    return floats(run(table(launch()), 3, TANH)[1], 3)


def reads_outside() -> object:
    return run(table(launch(n=["+", "T", 1])))


def writes_outside() -> object:
    return run(table(launch(y=["+", ["*", "T", 60], 8])), 6)


def writes_a_region_that_it_may_read() -> object:
    params = (pointer(0, IO, 0, READ), pointer(8, IO, 0, READ), number(16, "T"))
    return run(table(launch(params=params)))


def touches_a_region_without_a_pointer() -> object:
    far = ["*", "T", 16448]  # past IO (16 bytes) and the gap, at the next 256: WORKSPACE
    return run(table(launch(params=(pointer(0, IO, far, READ), *launch().params[1:]))), 4)


def null_pointer() -> object:
    null = Param(ParamKind.NULL, 0, 8)
    return run(table(launch(params=(launch().params[0], null, number(16, "T")))))


def gemm() -> object:
    """d [T, 2] = a [T, 3] @ w [2, 3].T + c [T, 2]; a, w, c, d one after another in WORKSPACE."""
    place = {0: 0, 8: ["*", "T", 12], 16: ["+", ["*", "T", 12], 24]}
    place[24] = ["+", ["*", "T", 20], 24]
    access = {24: WRITE}
    params = tuple(
        pointer(offset, WORKSPACE, at, access.get(offset, READ)) for offset, at in place.items()
    )
    found = []
    for adds in (True, False):
        nodes = Node(
            NodeKind.GEMM, target=0, params=tuple(p for p in params if adds or p.offset != 16)
        )
        made = table(nodes, gemms=(Gemm("T", 2, 3, "float32", adds),))
        memory = HostMemory(made, {"T": 2})
        values = memory.region(WORKSPACE).view(np.float32)
        values[:6], values[6:12], values[12:16] = range(6), range(6), 100
        list(Interpreter(made, {DIGEST: DOUBLE}, Path()).segments(memory, Shape(uniform=False)))
        found.append(values[16:20].tolist())
    return found


def fills_and_copies() -> object:
    numbers = ((8, 0x3F800000, ParamKind.I32), (12, 4, ParamKind.I32), (16, 2, ParamKind.I64))
    numbers += ((24, 2, ParamKind.I64), (32, 16, ParamKind.I64))
    fill = (pointer(0, WORKSPACE, 0, WRITE), *(number(at, v, kind) for at, v, kind in numbers))
    copy = (pointer(0, WORKSPACE, 8, WRITE), pointer(8, IO, 4, READ))
    nodes = (
        Node(NodeKind.MEMSET, params=fill),
        Node(NodeKind.MEMCPY, params=(*copy, number(16, 8, ParamKind.I64))),
        Node(NodeKind.EMPTY),
    )
    return floats(run(table(*nodes))[1], 7)


def shapes() -> object:
    """Which segments and nodes run in which shape of a step."""
    nodes = (
        launch(y=0, when=When.UNIFORM),
        launch(y=0, when=When.MIXED, n=1),
        launch(y=["*", "T", 4]),
        launch(y=["*", "T", 8]),
    )
    kinds = (SegmentKind.ADVANCE, 1), (SegmentKind.PIECE, 2), (SegmentKind.SAMPLE, 1)
    nodes = (nodes[2], nodes[0], nodes[1], nodes[3])
    made = table(*nodes, segments=tuple(Segment(k, k.name.lower(), n) for k, n in kinds))
    found = {}
    for name, shape in (
        ("mixed", {}),
        ("uniform", {"uniform": True}),
        ("loop", {"uniform": True, "advance": True, "sample": True}),
    ):
        names, memory = run(made, 2, **shape)
        found[name] = [names, floats(memory, 6)]
    return found


def no_source() -> object:
    return run(table(launch()), source=None)


def a_parameter_short() -> object:
    return run(table(launch(params=launch().params[:2])))


def a_number_for_a_pointer() -> object:
    return run(table(launch(params=(number(0, 1), *launch().params[1:]))))


def a_wide_number_for_a_narrow_one() -> object:
    return run(table(launch(params=(*launch().params[:2], number(16, 1, ParamKind.I64)))))


def an_empty_grid() -> object:
    return run(table(launch(grid=(["//", "T", 64], 1, 1))))


def an_odd_address() -> object:
    return run(table(launch(x=2)))


CASES: tuple[Callable[[], object], ...] = (
    *(kernel, offsets, generated, gemm, fills_and_copies, shapes),
    *(reads_outside, writes_outside, writes_a_region_that_it_may_read, null_pointer),
    *(touches_a_region_without_a_pointer, no_source, a_parameter_short, a_number_for_a_pointer),
    *(a_wide_number_for_a_narrow_one, an_empty_grid, an_odd_address),
)


def outcome(case: Callable[[], object]) -> dict[str, object]:
    """What a case gave, or the error that ended it."""
    try:
        return {"value": case()}
    except VccError as error:
        return {"error": error.as_dict()}


if __name__ == "__main__":
    print(json.dumps({case.__name__: outcome(case) for case in CASES}, default=str))
