"""A step as one list of nodes: pieces and operators in order, every tensor in named memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import (
    SIZES,
    checked,
    dense,
    extent,
    rebuilt,
    times,
)
from vcc.engine.graphs.planner.memory import Located, Memory, tensor_bytes
from vcc.engine.graphs.planner.operators import Operator
from vcc.engine.graphs.planner.pieces import is_plain
from vcc.engine.graphs.planner.refusal import refused
from vcc.engine.graphs.planner.types import Geometry, Launch, PlannedPiece, Product
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.layout import Family
from vcc.engine.graphs.table.types import READ, WRITE, RegionKind, SegmentKind, When
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.torch_shim.triton_build import CompiledKernel
from vcc.engine.types import Piece

ACCESS: Mapping[str, int] = {"r": READ, "w": WRITE, "rw": READ | WRITE}


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address argument: a byte of some memory, and what is done through it."""

    memory: str
    offset: Expr
    access: int


@dataclass(frozen=True, slots=True)
class FlatLaunch:
    """A kernel launch; `arguments` hold a value for each run-time parameter by name."""

    kernel: CompiledKernel | KernelSpec
    grid: tuple[Expr, Expr, Expr]
    arguments: Mapping[str, Pointer | Expr | float]
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class FlatProduct:
    """A matrix product; `operands` are a, w, c where there is one, d, and a_scale and w_scale.

    `out` and `scales` are those of `table.types.Gemm`; a scaled one can be computed by `launch`.
    `repeated` says how often the scale of a stands in memory where it is one number.
    """

    m: Expr
    n: int
    k: int
    dtype: str
    operands: Mapping[str, Pointer]
    out: str = ""
    scales: str = ""
    launch: FlatLaunch | None = None
    repeated: Expr = 1

    @property
    def family(self) -> Family:
        """What it is apart from its rows."""
        return self.n, self.k, self.dtype, "c" in self.operands, self.out, self.scales


FlatNode = FlatLaunch | FlatProduct

ADAPTING = ("lora_shrink", "lora_expand")
"""Our kernels that only rows with an adapter need."""


def pointers_of(node: FlatNode) -> list[Pointer]:
    """The addresses that a node is given."""
    values = node.operands if isinstance(node, FlatProduct) else node.arguments
    return [value for value in values.values() if isinstance(value, Pointer)]


@dataclass(frozen=True, slots=True)
class FlatSegment:
    """The next `nodes` nodes."""

    kind: SegmentKind
    name: str
    nodes: int


@dataclass(slots=True)
class Flat:
    """Collects the nodes of a step, and the memory that they use."""

    values: dict[str, Located]
    memories: dict[str, Memory]
    nodes: list[FlatNode] = field(default_factory=list)
    segments: list[FlatSegment] = field(default_factory=list)

    def segment(self, kind: SegmentKind, name: str, nodes: Sequence[FlatNode]) -> None:
        """Append nodes that belong together."""
        if nodes:
            self.nodes.extend(nodes)
            self.segments.append(FlatSegment(kind, name, len(nodes)))

    def piece(self, index: int, call: Call, piece: Piece, planned: PlannedPiece) -> None:
        """Append the nodes of a piece that is call number `index`."""
        arguments = [str(name) for name in call.args]
        sizes = self._sizes(piece, arguments)
        known = self._tensors(index, arguments, planned, sizes)
        first = len(piece.arguments) - piece.outputs
        for position, tensor in enumerate(planned.outputs, first):
            if planned.arguments[position] is None:
                self.values[arguments[position]] = known[tensor]
        nodes = [_bound(work, known, sizes) for work in planned.work]
        for node in nodes:
            self._check_writes(piece, node)
        self.segment(SegmentKind.PIECE, piece.id[:16], nodes)

    def _check_writes(self, piece: Piece, node: FlatNode) -> None:
        """A piece that writes what it was given would copy all of it first, or lose the write."""
        for pointer in pointers_of(node):
            memory = self.memories[pointer.memory]
            if pointer.access & WRITE and memory.kind is not RegionKind.WORKSPACE:
                raise refused(
                    f"piece {piece.id[:12]}",
                    f"the write into {memory.name}",
                    "an input that compiled code changes is copied as a whole; only operators"
                    " such as vcc::kv_write change one in place",
                )

    def operator(self, index: int, operator: Operator, given: Mapping[str, str]) -> None:
        """Append the launches of an operator; `given` maps its arguments to values of the step."""
        tensors = {name: self.owned(value) for name, value in given.items()}
        for space in operator.made.workspaces:
            name = f"{index}.{space.name}"
            shape = tuple(rebuilt(size, _Same()) for size in space.shape)
            size = tensor_bytes(space.dtype, shape)
            self.memories[name] = Memory(name, RegionKind.WORKSPACE, checked(size))
            tensors[space.name] = Located(name, Geometry(space.dtype, shape, dense(shape)))
        nodes = []
        for launch in operator.made.launches:
            kinds = dict(launch.kernel.parameters)
            arguments = {
                name: Pointer(tensors[value].memory, tensors[value].offset, launch.access[name])
                if kinds[name].startswith("*")
                else _number(value, _Same())
                for name, value in launch.arguments.items()
            }
            x, y, z = (checked(rebuilt(size, _Same())) for size in launch.grid)
            nodes.append(FlatLaunch(launch.kernel, (x, y, z), arguments, launch.when))
        self.segment(operator.kind, operator.name, nodes)

    def owned(self, name: str) -> Located:
        """A value of the step; what nothing has produced gets memory of its own."""
        located = self.values[name]
        if located.memory not in self.memories:
            size = tensor_bytes(located.geometry.dtype, located.geometry.shape)
            self.memories[name] = Memory(name, RegionKind.WORKSPACE, checked(size))
        return located

    def _sizes(self, piece: Piece, arguments: Sequence[str]) -> dict[str, Expr]:
        """The step's expression of each size of a piece."""
        sizes: dict[str, Expr] = {}
        for spec, name in zip(piece.arguments, arguments, strict=True):
            for size, found in zip(spec.shape, self.values[name].geometry.shape, strict=True):
                if isinstance(size, str):
                    sizes.setdefault(size, found)
        return sizes

    def _tensors(
        self,
        index: int,
        arguments: Sequence[str],
        planned: PlannedPiece,
        sizes: Mapping[str, Expr],
    ) -> dict[str, Located]:
        bases = {}
        for name, placeholder in zip(arguments, planned.arguments, strict=True):
            if placeholder is not None:
                bases[placeholder] = self._plain(name)
        for buffer in planned.buffers:
            geometry = _renamed(planned.tensors[buffer].geometry, sizes)
            memory = f"{index}.{buffer}"
            size = times(SIZES[geometry.dtype], extent(geometry.shape, geometry.stride))
            self.memories[memory] = Memory(memory, RegionKind.WORKSPACE, checked(size))
            bases[buffer] = memory
        return {
            name: Located(bases[placed.base], _renamed(placed.geometry, sizes))
            for name, placed in planned.tensors.items()
        }

    def _plain(self, name: str) -> str:
        located = self.owned(name)
        if not is_plain(located.geometry):
            raise CompileError(f"{name} is a view, but a piece takes it as a dense tensor")
        return located.memory


class _Same(dict[str, Expr]):
    """Names that stay as they are."""

    def __missing__(self, key: str) -> str:
        return key


def _renamed(geometry: Geometry, sizes: Mapping[str, Expr]) -> Geometry:
    return Geometry(
        geometry.dtype,
        tuple(rebuilt(size, sizes) for size in geometry.shape),
        tuple(rebuilt(size, sizes) for size in geometry.stride),
        rebuilt(geometry.offset, sizes),
    )


def _number(value: Expr, sizes: Mapping[str, Expr]) -> Expr | float:
    return value if isinstance(value, float) else checked(rebuilt(value, sizes))


def _bound(
    work: Launch | Product, known: Mapping[str, Located], sizes: Mapping[str, Expr]
) -> FlatNode:
    return (
        _product(work, known, sizes) if isinstance(work, Product) else _launch(work, known, sizes)
    )


def _launch(work: Launch, known: Mapping[str, Located], sizes: Mapping[str, Expr]) -> FlatLaunch:
    arguments: dict[str, Pointer | Expr | float] = {}
    for name, value in work.arguments.items():
        if name in work.access:
            located = known[str(value)]
            arguments[name] = Pointer(
                located.memory, checked(located.offset), ACCESS[work.access[name]]
            )
        else:
            arguments[name] = _number(value, sizes)
    x, y, z = (checked(rebuilt(size, sizes)) for size in work.grid)
    return FlatLaunch(work.kernel, (x, y, z), arguments, _when(work.kernel))


def _when(kernel: CompiledKernel | KernelSpec) -> When:
    """Kernels of adapters add to what is there: a step without any leaves them out."""
    function = kernel.function
    name = function if isinstance(function, str) else function.fn.__name__
    return When.ADAPTED if name in ADAPTING else When.ALWAYS


def _product(work: Product, known: Mapping[str, Located], sizes: Mapping[str, Expr]) -> FlatProduct:
    names = {"a": work.a, "w": work.w, **({"c": work.c} if work.c else {}), "d": work.d}
    scaling = work.scaling
    if scaling is not None:
        names |= {"a_scale": scaling.a_scale, "w_scale": scaling.w_scale}
    operands = {
        key: Pointer(known[name].memory, checked(known[name].offset), WRITE if key == "d" else READ)
        for key, name in names.items()
    }
    made = FlatProduct(checked(rebuilt(work.m, sizes)), work.n, work.k, work.dtype, operands)
    if scaling is None:
        return made
    launch = _launch(scaling.launch, known, sizes)
    often = known[scaling.a_scale].geometry.shape[0]
    return replace(made, out=scaling.out, scales=scaling.scales, launch=launch, repeated=often)
