"""Pieces, operators, the loop's head and tail: one node table for all sizes of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr
from vcc.engine.graphs.planner.arithmetic import add, largest
from vcc.engine.graphs.planner.emit import Emitter, Places, variants_for
from vcc.engine.graphs.planner.flat import Flat, FlatLaunch, FlatNode, FlatProduct, pointers_of
from vcc.engine.graphs.planner.kernels import compile_specs
from vcc.engine.graphs.planner.memory import Memory, lifetimes, pack, stacked
from vcc.engine.graphs.planner.operators import advance, operator_of, sample, tensors_of
from vcc.engine.graphs.planner.pieces import is_plain
from vcc.engine.graphs.planner.sources import ValuePlace
from vcc.engine.graphs.planner.step import Step, StepLimits, step_of
from vcc.engine.graphs.planner.types import PlannedPiece
from vcc.engine.graphs.table.types import (
    NodeTable,
    Region,
    RegionKind,
    Role,
    Segment,
    TableTensor,
)
from vcc.engine.ops.triton.registry import Facts, GemmVariant, gemm_scratch, gemm_variants
from vcc.engine.ops.triton.specs import KernelSpec
from vcc.engine.torch_shim.triton_build import CompiledKernel
from vcc.engine.types import Pieces


@dataclass(frozen=True, slots=True)
class Joined:
    """A step's table, the kernels that it names by cubin digest, and where each value lies."""

    table: NodeTable
    kernels: Mapping[str, CompiledKernel]
    values: Mapping[str, ValuePlace]


def join(
    pieces: Pieces,
    planned: Mapping[str, PlannedPiece],
    facts: Facts,
    limits: StepLimits | None = None,
    tied: Mapping[str, str] | None = None,
    jobs: int = 0,
) -> Joined:
    """Put a step together.

    Args:
        pieces: the program and its unique pieces.
        planned: their work, by piece id.
        facts: what the operators' kernels depend on.
        limits: of a decoder, whose step gets the loop's head and tail; None for a plain module.
        tied: parameter to the parameter whose memory it shares.
        jobs: processes that compile kernels; 0 takes one a processor.

    Raises:
        CompileError: something that a node table cannot express; it is named.
    """
    step = step_of(pieces.program, limits, tied or {})
    flat = _flat(pieces, planned, facts, step, decodes=limits is not None)
    _move_outputs(flat, pieces.program.outputs)
    products = [node for node in flat.nodes if isinstance(node, FlatProduct)]
    variants = _variants(products, facts)
    compiled = compile_specs(_specs(flat.nodes, variants), facts.profile, jobs)
    return _emitted(flat, step, pieces.program.outputs, variants, compiled)


def _flat(
    pieces: Pieces, planned: Mapping[str, PlannedPiece], facts: Facts, step: Step, *, decodes: bool
) -> Flat:
    flat = Flat(dict(step.values), dict(step.memories))
    unique = {piece.id: piece for piece in pieces.unique}
    if decodes:
        head = advance(facts)
        flat.operator(0, head, _by_name(head.made, step))
    for index, call in enumerate(pieces.program.calls, 1):
        if call.kind == "piece":
            flat.piece(index, call, unique[call.target], planned[call.target])
        else:
            given = tensors_of(call)
            for name in given.values():
                flat.owned(name)
            flat.operator(index, operator_of(call, flat.values, facts), given)
    if decodes:
        (logits,) = pieces.program.outputs
        tail = sample(facts)
        given = _by_name(tail.made, step) | {"logits": logits}
        flat.operator(len(pieces.program.calls) + 1, tail, given)
    return flat


def _by_name(made: Any, step: Step) -> dict[str, str]:
    """The step's own tensors that launches name."""
    named = {str(value) for one in made.launches for value in one.arguments.values()}
    return {name: name for name in sorted(named) if name in step.values}


def _move_outputs(flat: Flat, outputs: Sequence[str]) -> None:
    """A step's results lie where the host reads them."""
    for name in outputs:
        located = flat.owned(name)
        memory = flat.memories[located.memory]
        if not is_plain(located.geometry) or memory.kind is not RegionKind.WORKSPACE:
            raise CompileError(
                f"output {name} of the step is a view of another tensor",
                hint="return tensors that the step computes",
            )
        flat.memories[located.memory] = replace(memory, kind=RegionKind.IO)


def _variants(products: Sequence[FlatProduct], facts: Facts) -> tuple[GemmVariant, ...]:
    shapes: dict[str, list[tuple[int, int, bool]]] = {}
    for node in products:
        shapes.setdefault(node.dtype, []).append((node.n, node.k, "c" in node.operands))
    found = [gemm_variants(dtype, facts.profile, known) for dtype, known in shapes.items()]
    return tuple(variant for some in found for variant in some)


def _specs(nodes: Sequence[FlatNode], variants: Sequence[GemmVariant]) -> list[KernelSpec]:
    launched = [n.kernel for n in nodes if isinstance(n, FlatLaunch)]
    specs = [kernel for kernel in launched if isinstance(kernel, KernelSpec)]
    for one in variants:
        specs += [one.kernel, *([one.reduce] if one.reduce else [])]
    return specs


def _emitted(
    flat: Flat,
    step: Step,
    outputs: Sequence[str],
    variants: Sequence[GemmVariant],
    compiled: Mapping[Any, CompiledKernel],
) -> Joined:
    scratch = max((_scratch(n, variants, step.highs) for n in flat.nodes), default=0)
    places, regions = _laid_out(flat, step, scratch)
    emitter = Emitter(places, compiled, step.highs)
    nodes = tuple(emitter.node(node) for node in flat.nodes)
    table = NodeTable(
        symbols=step.symbols,
        regions=regions,
        tensors=_tensors(flat, step, places, outputs),
        nodes=nodes,
        gemms=emitter.products,
        variants=variants_for(emitter, emitter.products, variants),
        segments=tuple(Segment(s.kind, s.name, s.nodes) for s in flat.segments),
    )
    cubins = tuple((digest, len(kernel.cubin)) for digest, kernel in emitter.cubins.items())
    whole = replace(table, cubins=cubins, kernels=tuple(emitter.kernels))
    return Joined(whole, emitter.cubins, _values(flat, places))


def _values(flat: Flat, places: Places) -> dict[str, ValuePlace]:
    """The place of every value of the program, for the CPU check; a table does not need it."""
    return {
        name: ValuePlace(
            places.regions[flat.memories[located.memory].kind],
            add(places.offsets[located.memory], located.offset),
            located.geometry.dtype,
            located.geometry.shape,
            located.geometry.stride,
        )
        for name, located in flat.values.items()
        if located.memory in places.offsets
    }


def _scratch(node: FlatNode, variants: Sequence[GemmVariant], highs: Mapping[str, int]) -> int:
    if not isinstance(node, FlatProduct):
        return 0
    own = [variant for variant in variants if variant.dtype == node.dtype]
    return gemm_scratch(own, node.n, node.k, "c" in node.operands, largest(node.m, highs))


def _laid_out(flat: Flat, step: Step, scratch: int) -> tuple[Places, tuple[Region, ...]]:
    """Offsets of all memory and the regions that hold it."""
    offsets: dict[str, Expr] = {}
    sizes: dict[RegionKind, Expr] = {}
    for kind in (RegionKind.WEIGHTS, RegionKind.KV_CACHE, RegionKind.IO):
        found, sizes[kind] = stacked(
            [_fixed(m, step.highs) for m in _in_order(flat, step) if m.kind is kind]
        )
        offsets |= found
    found, sizes[RegionKind.WORKSPACE] = pack(
        lifetimes(
            flat.memories,
            [[p.memory for p in pointers_of(node)] for node in flat.nodes],
            step.highs,
        )
    )
    offsets |= found
    sizes[RegionKind.SCRATCH] = scratch
    kinds = [kind for kind, size in sizes.items() if size != 0]
    regions = tuple(Region(kind, sizes[kind]) for kind in kinds)
    return Places({k: i for i, k in enumerate(kinds)}, flat.memories, offsets), regions


def _fixed(memory: Memory, highs: Mapping[str, int]) -> Memory:
    """Inputs and outputs lie at the same place at every size: the host writes and reads there."""
    if memory.kind is not RegionKind.IO:
        return memory
    return replace(memory, size=largest(memory.size, highs))


def _in_order(flat: Flat, step: Step) -> list[Memory]:
    """Memory as regions hold it: inputs before outputs, results of the step last."""
    ranks = {Role.OUTPUT: 1, Role.STATE: 1}
    return sorted(
        flat.memories.values(),
        key=lambda m: ranks.get(step.roles[m.name], 0) if m.name in step.roles else 2,
    )


def _tensors(
    flat: Flat, step: Step, places: Places, outputs: Sequence[str]
) -> tuple[TableTensor, ...]:
    """The tensors with names: weights, constants, caches, inputs and outputs."""
    targets = step.targets
    roles = dict(step.roles) | dict.fromkeys(outputs, Role.OUTPUT)
    names = dict(zip(outputs, ("logits",), strict=False)) if "token" in roles else {}
    found = []
    for name, role in roles.items():
        located = flat.values[name]
        region = places.regions[flat.memories[located.memory].kind]
        found.append(
            TableTensor(
                names.get(name, name),
                names.get(name, targets.get(name, name)),
                role,
                located.geometry.dtype,
                region,
                places.offsets[located.memory],
                located.geometry.shape,
            )
        )
    return tuple(found)
