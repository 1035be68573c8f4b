"""Code for the CPU: trace, passes, partition, one library for each unique piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from vcc.engine.compile.artifact import Made
from vcc.engine.compile.building import Build
from vcc.engine.compile.toolchain import compiler_options
from vcc.engine.config.environment import read_environment, use_build_folder
from vcc.engine.config.reads import Reads
from vcc.engine.graphs import program as programs
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.types import CompiledPiece, Passed, Pieces, Traced


def compile_for_cpu(build: Build) -> Made:
    """Run the stages and return the artifact's content.

    Raises:
        CompileError: a stage failed.
        DeviceError: no compiler, or a dtype or CPU level without kernels.
    """
    from vcc.engine.compile.scratch import scratch

    with scratch() as folder:
        use_build_folder(folder, build.settled.request.target.arch)
        passed = _passed(build)
        pieces = _pieces(build, passed)
        compiled = _compiled(build, pieces)
    return _made(passed, pieces, compiled)


def _made(passed: Passed, pieces: Pieces, compiled: tuple[CompiledPiece, ...]) -> Made:
    constants = passed.traced.constants
    reads = Reads()
    for piece in compiled:
        reads.merge(piece.reads)
    return Made(
        blobs=_blobs(pieces, compiled, constants),
        info={
            "passes": reports(passed),
            "pieces": _piece_info(pieces, compiled),
            "constants": constant_info(constants),
        },
        reads=reads.as_dict(),
    )


def _blobs(
    pieces: Pieces, compiled: tuple[CompiledPiece, ...], constants: Mapping[str, torch.Tensor]
) -> dict[str, bytes]:
    blobs = {"program": programs.encode(pieces.program)}
    for piece in compiled:
        blobs[f"piece/{piece.id}.so"] = piece.library
        if piece.external_ops is not None:
            blobs[f"piece/{piece.id}.json"] = piece.external_ops
        if piece.golden is not None:
            blobs[f"golden/{piece.id}"] = piece.golden
    return blobs | {f"constant/{name}": raw(data) for name, data in constants.items()}


def raw(data: torch.Tensor) -> bytes:
    """The bytes of a tensor, row-major."""
    return data.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def constant_info(constants: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Geometry of constants for the manifest."""
    return {
        name: {"dtype": NAMES[data.dtype], "shape": list(data.shape)}
        for name, data in constants.items()
    }


def reports(passed: Passed) -> list[dict[str, Any]]:
    """What the passes did, for the manifest."""
    return [
        {
            "name": r.name,
            "version": r.version,
            "matches": r.matches,
            "refused": list(r.refused[:8]),
            "skipped": r.skipped,
            "saved": {"bytes": r.saved.bytes, "launches": r.saved.launches},
            "needs": list(r.needs),
        }
        for r in passed.reports
    ]


def _piece_info(pieces: Pieces, compiled: tuple[CompiledPiece, ...]) -> list[dict[str, Any]]:
    return [
        {
            "id": piece.id,
            "calls": pieces.calls[piece.id],
            "bytes": len(piece.library),
            "golden": piece.golden is not None,
            "notes": list(piece.notes),
            "seconds": round(piece.seconds, 3),
        }
        for piece in compiled
    ]


def _passed(build: Build) -> Passed:
    from vcc.engine.compile.dump import Dump
    from vcc.engine.passes.apply import apply, unmatched
    from vcc.engine.passes.context import context_of
    from vcc.engine.passes.user import chosen

    dump = Dump(build.settled.request.keep)
    with build.stage("trace"):
        traced = _traced(build)
        build.counters.add("traces")
        dump.graph("traced", traced)
    with build.stage("passes"):
        passes = chosen(build.settled.resolved.config)
        passed = apply(traced, passes, context_of(build.settled), dump)
        for line in unmatched(passed, build.settled.request.compilation):
            build.events.note(line)
        return passed


def _traced(build: Build) -> Traced:
    from vcc.engine.compile.source import trace_request
    from vcc.engine.trace.trace import trace

    return trace(trace_request(build.settled))


def _pieces(build: Build, passed: Passed) -> Pieces:
    from vcc.engine.compile.dump import Dump
    from vcc.engine.config.inductor_options import option_pairs
    from vcc.engine.partition.split import split
    from vcc.engine.passes.apply import version_pairs
    from vcc.engine.passes.user import chosen

    config = build.settled.resolved.config
    with build.stage("partition"):
        passes = version_pairs(chosen(config))
        options = (*passes, *option_pairs(_options(build)), *_toolchain(build))
        pieces = split(passed.traced, _splitting_ops(build, passed), options)
        build.counters.add("pieces", sum(pieces.calls.values()))
        build.counters.add("unique_pieces", len(pieces.unique))
        Dump(build.settled.request.keep).pieces(pieces)
        return pieces


def _splitting_ops(build: Build, passed: Passed) -> tuple[str, ...]:
    """The resolved splitting ops; those that a user named and the model lacks are told."""
    from vcc.engine.partition.ops import absent

    ops = build.settled.resolved.config.splitting_ops or ()
    missing = absent(passed.traced.graph.graph, ops)
    if build.settled.request.compilation.splitting_ops is not None:
        for name in missing:
            build.events.note(f"splitting op {name} is not in this model: nothing is cut there")
    return ops


def _toolchain(build: Build) -> tuple[tuple[str, str], ...]:
    wanted = ("compiler", "target", "version.torch", "version.triton")
    return tuple((name, build.code[name]) for name in wanted)


def _options(build: Build) -> dict[str, object]:
    from vcc.engine.torch_shim.inductor import merged_options

    user = dict(build.settled.resolved.config.inductor_config or ())
    options = {**compiler_options(build.code["compiler"]), **user}
    return merged_options(build.settled.request.target.arch, options)


def _compiled(build: Build, pieces: Pieces) -> tuple[CompiledPiece, ...]:
    from vcc.engine.compile.pool import compile_pieces, default_jobs
    from vcc.engine.torch_shim.preload import preload_inductor

    asked = build.settled.request.jobs or read_environment().workers
    with build.stage("compile", len(pieces.unique)):
        preload_inductor(build.settled.request.target.arch)
        compiled = compile_pieces(
            pieces.unique, _options(build), asked or default_jobs(pieces.unique), build.events
        )
        build.counters.add("compiles", len(compiled))
        return compiled
