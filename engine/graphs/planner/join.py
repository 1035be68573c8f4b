"""Pieces, operators, the loop's head and tail: a node table for all sizes, or one a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import most
from vcc.engine.graphs.planner.arithmetic import add
from vcc.engine.graphs.planner.emit import Emitter, Places, variants_for
from vcc.engine.graphs.planner.flat import Flat, FlatLaunch, FlatNode, FlatProduct
from vcc.engine.graphs.planner.kernels import compile_specs
from vcc.engine.graphs.planner.operators import advance, operator_of, sample, tensors_of
from vcc.engine.graphs.planner.pieces import is_plain
from vcc.engine.graphs.planner.regions import Drawn, lay_out
from vcc.engine.graphs.planner.scaled import BLOCKS, SPREAD
from vcc.engine.graphs.planner.sources import ValuePlace
from vcc.engine.graphs.planner.step import Step, StepLimits, sharing_weights, step_of
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


@dataclass(frozen=True, slots=True)
class Part:
    """The step of one range: its program, and the limits of a decoder's (None: a plain module)."""

    pieces: Pieces
    limits: StepLimits | None = None


def join(
    pieces: Pieces,
    planned: Mapping[str, PlannedPiece],
    facts: Facts,
    limits: StepLimits | None = None,
    tied: Mapping[str, str] | None = None,
    jobs: int = 0,
) -> Joined:
    """Put a step together that is one table for all its sizes; see `join_ranges`."""
    (joined,) = join_ranges((Part(pieces, limits),), planned, facts, tied, jobs)
    return joined


def join_ranges(
    parts: Sequence[Part],
    planned: Mapping[str, PlannedPiece],
    facts: Facts,
    tied: Mapping[str, str] | None = None,
    jobs: int = 0,
) -> tuple[Joined, ...]:
    """Put a step together: a table for each range of sizes, all over the same memory.

    Args:
        parts: the ranges; a decoder's get the loop's head and tail.
        planned: the work of their pieces, by piece id.
        facts: what the operators' kernels depend on.
        tied: parameter to the parameter whose memory it shares.
        jobs: processes that compile kernels; 0 takes one a processor.

    Raises:
        CompileError: something that a node table cannot express; it is named.
    """
    steps = tuple(step_of(one.pieces.program, one.limits, tied or {}) for one in parts)
    if len(steps) > 1:
        steps = sharing_weights(steps)
    flats = []
    for one, step in zip(parts, steps, strict=True):
        flat = _flat(one.pieces, planned, facts, step, decodes=one.limits is not None)
        _move_outputs(flat, one.pieces.program.outputs)
        flats.append(flat)
    nodes = [node for flat in flats for node in flat.nodes]
    variants = _variants([node for node in nodes if isinstance(node, FlatProduct)], facts)
    compiled = compile_specs(_specs(nodes, variants), facts.profile, jobs)
    drawn = [Drawn(s, f, _partials(f, variants, s)) for s, f in zip(steps, flats, strict=True)]
    made = zip(drawn, parts, lay_out(drawn), strict=True)
    return tuple(
        _emitted(one, part.pieces.program.outputs, places, regions, variants, compiled)
        for one, part, (places, regions) in made
    )


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
    if len(set(outputs)) != len(outputs):
        raise CompileError(
            "two outputs of the step are one tensor", hint="return a copy of it: .clone()"
        )
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
    for node in (one for one in products if not one.scales):
        shapes.setdefault(node.dtype, []).append((node.n, node.k, "c" in node.operands))
    found = [gemm_variants(dtype, facts.profile, known) for dtype, known in shapes.items()]
    return tuple(variant for some in found for variant in some)


def _specs(nodes: Sequence[FlatNode], variants: Sequence[GemmVariant]) -> list[KernelSpec]:
    launched = [n.kernel for n in nodes if isinstance(n, FlatLaunch)]
    specs = [kernel for kernel in launched if isinstance(kernel, KernelSpec)]
    for one in variants:
        specs += [one.kernel, *([one.reduce] if one.reduce else [])]
    if any(isinstance(node, FlatProduct) and node.scales == BLOCKS for node in nodes):
        specs.append(SPREAD)
    return specs


def _emitted(
    drawn: Drawn,
    outputs: Sequence[str],
    places: Places,
    regions: tuple[Region, ...],
    variants: Sequence[GemmVariant],
    compiled: Mapping[Any, CompiledKernel],
) -> Joined:
    flat, step = drawn.flat, drawn.step
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


def _partials(flat: Flat, variants: Sequence[GemmVariant], step: Step) -> int:
    """Bytes of the partial products of a step."""
    return max((_scratch(node, variants, step.highs) for node in flat.nodes), default=0)


def _scratch(node: FlatNode, variants: Sequence[GemmVariant], highs: Mapping[str, int]) -> int:
    if not isinstance(node, FlatProduct) or node.scales:
        return 0
    own = [variant for variant in variants if variant.dtype == node.dtype]
    return gemm_scratch(own, node.n, node.k, "c" in node.operands, most(node.m, highs))


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
