"""The build of a GPU step, stage after stage, in a process that is for nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vcc.engine.compile.cpu import constant_info, reports
from vcc.engine.compile.dump import Dump
from vcc.engine.compile.ranges import (
    Cut,
    RangePieces,
    Ranging,
    cut,
    merged_reports,
    ranges_info,
    run_passes,
)
from vcc.engine.compile.source import made_module, step_shape, torch_name, trace_request
from vcc.engine.config.inductor_options import option_pairs
from vcc.engine.events import Events, timed_stage
from vcc.engine.graphs.planner.content import GpuContent, StepContent
from vcc.engine.graphs.planner.figures import figures
from vcc.engine.graphs.planner.filters import turned_bindings, weights_of, with_turned
from vcc.engine.graphs.planner.golden import Goldens, make_goldens
from vcc.engine.graphs.planner.join import Joined, Part, join_ranges
from vcc.engine.graphs.planner.outputs import giving_results, taken_as_rows, written_again
from vcc.engine.graphs.planner.pieces import compile_piece
from vcc.engine.graphs.planner.refusal import hints_for
from vcc.engine.graphs.planner.step import StepLimits
from vcc.engine.graphs.planner.types import PlannedPiece
from vcc.engine.graphs.table.encode import encode
from vcc.engine.graphs.table.types import NodeTable
from vcc.engine.models.bindings import bindings_of
from vcc.engine.models.expressions import Tied
from vcc.engine.monitor import Counters
from vcc.engine.op_routes import op_routes
from vcc.engine.ops.cuda.kernel import own_driver_floor
from vcc.engine.ops.triton.registry import Facts
from vcc.engine.passes.apply import version_pairs
from vcc.engine.passes.user import chosen
from vcc.engine.ranged import range_name
from vcc.engine.request import Settled
from vcc.engine.tensor_bytes import tensor_bytes
from vcc.engine.torch_shim import cuda_build
from vcc.engine.torch_shim.fx_wrapper import cuda_options
from vcc.engine.torch_shim.inductor import check_options
from vcc.engine.torch_shim.profiles import DeviceProfile
from vcc.engine.torch_shim.triton_build import driver_floor, toolkit
from vcc.engine.trace.attention import plain_attention
from vcc.engine.trace.decoder import MOST_BLOCKS
from vcc.engine.trace.scalars import FilledNumbers
from vcc.engine.trace.trace import trace
from vcc.engine.types import Traced

COUNTED = ("traces", "passes", "pieces", "unique_pieces", "compiles")


@dataclass(frozen=True, slots=True)
class Planning:
    """A running build of a GPU step: for whom, for what, and who is told."""

    settled: Settled
    profile: DeviceProfile
    events: Events
    counters: Counters = field(default_factory=Counters)
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[None]:
        """Time a stage and report it."""
        with timed_stage(self.events, self.stages, name, total):
            yield

    @property
    def options(self) -> dict[str, Any]:
        """Inductor's options."""
        return cuda_options(dict(self.settled.resolved.config.inductor_config or ()))


def plan(planning: Planning, scratch: Path) -> GpuContent:
    """Trace, passes, partition, compile, join.

    Only for a process that ends afterwards: torch believes in a GPU from here on.

    Raises:
        CompileError: a stage failed, or the model holds what a node table cannot express.
        DeviceError: this build of torch cannot compile for a GPU.
    """
    with hints_for(planning.settled):
        return _planned(planning, scratch)


def _planned(planning: Planning, scratch: Path) -> GpuContent:
    with planning.stage("import"):
        made = made_module(planning.settled)
        cuda_build.install(planning.profile, scratch)
        check_options(dict(planning.settled.resolved.config.inductor_config or ()))
    traced, found = _cut(planning, made)
    planned = _compiled(planning, found)
    with planning.stage("plan"):
        joined = _joined(planning, found, planned)
    with planning.stage("golden"):
        goldens = make_goldens(found.unique, planned, _homes(found, joined))
    return _content(planning, traced.constants, found, joined, goldens)


def _cut(planning: Planning, made: torch.nn.Module | None) -> tuple[Traced, Cut]:
    """The trace, and the pieces of every range of tokens."""
    dump = Dump(planning.settled.request.keep)
    ranging = Ranging(planning.settled, planning.events, planning.counters, dump)
    note = planning.events.note
    with planning.stage("trace"), torch.device("cuda"), plain_attention(note), FilledNumbers():
        traced = trace(trace_request(planning.settled, made, whole=True))
        planning.counters.add("traces")
        dump.graph("traced", traced)
    for told in traced.notes:
        planning.events.note(told)
    with planning.stage("passes"):
        passed = run_passes(traced, ranging)
    with planning.stage("partition"):
        options = (
            *version_pairs(chosen(planning.settled.resolved.config)),
            *option_pairs(planning.options),
            ("target", planning.profile.target),
            ("profile", planning.profile.digest),
        )
        return traced, cut(passed, options, ranging)


def _compiled(planning: Planning, found: Cut) -> dict[str, PlannedPiece]:
    programs = [one.pieces.program for one in found.ranges]
    copied, strided = written_again(programs), taken_as_rows(programs)
    decoder = planning.settled.request.source.kind == "decoder"
    weights = {} if decoder else weights_of(programs)
    last = frozenset() if decoder else giving_results(programs)
    planned = {}
    with planning.stage("compile", len(found.unique)):
        for piece in found.unique:
            planning.events.progress(piece.id, "running")
            planned[piece.id] = compile_piece(
                piece,
                planning.profile,
                planning.options,
                copied=copied.get(piece.id, frozenset()),
                strided=strided.get(piece.id, frozenset()),
                weights=weights.get(piece.id, frozenset()),
                last=piece.id in last,
            )
            planning.events.progress(piece.id, "done")
        planning.counters.add("compiles", len(planned))
    return planned


def _joined(
    planning: Planning, found: Cut, planned: Mapping[str, PlannedPiece]
) -> tuple[Joined, ...]:
    settled, source = planning.settled, planning.settled.request.source
    shape, decoder = step_shape(settled), source.kind == "decoder"
    facts = Facts(
        torch_name(settled),
        planning.profile,
        shape.block_size,
        shape.max_blocks_per_seq,
        source.spec.vocab if decoder else 0,
        _own_writes(settled),
    )
    parts = [
        Part(
            with_turned(one.pieces, planned),
            StepLimits(one.sizes.max, shape.max_seqs, MOST_BLOCKS, fewest=one.sizes.min)
            if decoder
            else None,
        )
        for one in found.ranges
    ]
    bindings = bindings_of(source.spec) if decoder else {}
    tied = {name: one.name for name, one in bindings.items() if isinstance(one, Tied)}
    return join_ranges(parts, planned, facts, tied, settled.request.jobs)


def _homes(found: Cut, joined: Sequence[Joined]) -> dict[str, NodeTable]:
    """For each piece a table that runs it."""
    pairs = zip(found.ranges, joined, strict=True)
    return {piece.id: made.table for one, made in pairs for piece in one.pieces.unique}


def _own_writes(settled: Settled) -> frozenset[str]:
    """Writes into the cache go the way of the rotary embedding, which is fused into them."""
    routes = {one.op: one.route.backend for one in op_routes(settled)}
    taken = routes.get("rotary_embedding") == "cuda"
    return frozenset({"kv_write", "rope_kv_write"}) if taken else frozenset()


def _content(
    planning: Planning,
    constants: Mapping[str, torch.Tensor],
    found: Cut,
    joined: Sequence[Joined],
    goldens: Goldens,
) -> GpuContent:
    kernels = {digest: kernel for one in joined for digest, kernel in one.kernels.items()}
    steps = tuple(map(_step, _names(found), found.ranges, joined))
    return GpuContent(
        steps=steps,
        cubins={digest: kernel.cubin for digest, kernel in kernels.items()},
        constants={name: tensor_bytes(data).tobytes() for name, data in constants.items()},
        goldens=goldens.blobs,
        sources={digest: kernel.source for digest, kernel in kernels.items()},
        info={
            "constants": constant_info(constants),
            "passes": reports(merged_reports([one.passed for one in found.ranges])),
            "pieces": [{"id": p.id, "calls": found.calls[p.id]} for p in found.unique],
            **_figures(found, joined, steps),
            "goldens": dict(goldens.said),
            **_turned(found, joined),
        },
        stages=dict(planning.stages),
        counters={name: planning.counters[name] for name in COUNTED},
        toolkit=toolkit(planning.profile),
        driver=max(driver_floor(planning.profile), own_driver_floor(kernels.values())),
    )


def _turned(found: Cut, joined: Sequence[Joined]) -> dict[str, Any]:
    """Bindings of weights that lie otherwise than the module has them, where there are any."""
    programs = (one.pieces.program for one in found.ranges)
    made = turned_bindings(programs, (one.table for one in joined))
    return {"turned": made} if made else {}


def _names(found: Cut) -> list[str]:
    """The range of each table; of the only one nothing is said."""
    several = len(found.ranges) > 1
    return [range_name(one.sizes) if several else "" for one in found.ranges]


def _step(sizes: str, one: RangePieces, joined: Joined) -> StepContent:
    calls = tuple(tuple(call.outs) for call in one.pieces.program.calls)
    return StepContent(sizes, encode(joined.table), joined.values, calls)


def _figures(found: Cut, joined: Sequence[Joined], steps: Sequence[StepContent]) -> dict[str, Any]:
    """Figures of the only table, or what each range has, with those of its table."""
    tables = [figures(m.table, step.table) for m, step in zip(joined, steps, strict=True)]
    ranges = ranges_info(found)
    if not ranges:
        return {"table": tables[0]}
    return {"ranges": [{**one, "table": table} for one, table in zip(ranges, tables, strict=True)]}
