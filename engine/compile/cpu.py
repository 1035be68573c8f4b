"""Code for the CPU: trace, passes, partition, one library for each unique piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vcc.cache.errors import CompileError
from vcc.engine.compile.artifact import Made
from vcc.engine.compile.building import Build
from vcc.engine.compile.dump import Dump
from vcc.engine.compile.interface import compiler_of
from vcc.engine.compile.ranges import Cut, Ranging, cut, merged_reports, ranges_info, run_passes
from vcc.engine.config.environment import read_environment
from vcc.engine.config.reads import Reads
from vcc.engine.graphs import program as programs
from vcc.engine.graphs.dtypes import NAMES
from vcc.engine.models.checkpoint_forward import CheckpointRef
from vcc.engine.passes.apply import version_pairs
from vcc.engine.passes.user import chosen
from vcc.engine.ranged import range_name
from vcc.engine.tensor_bytes import tensor_bytes
from vcc.engine.types import CompiledPiece, PassReport, Piece, Traced


def compile_for_cpu(build: Build) -> Made:
    """Run the stages and return the artifact's content.

    The process has the environment of a build (`use_build_folder`) before this is imported.

    Raises:
        CompileError: a stage failed.
        DeviceError: no compiler, or a dtype or CPU level without kernels.
    """
    options, identity = _options(build)
    ranging = Ranging(
        build.settled,
        build.events,
        build.counters,
        Dump(build.settled.request.keep),
        by_range=compiler_of(build.settled).by_range,
    )
    traced = _traced(build, ranging)
    with build.stage("passes"):
        passed = run_passes(traced, ranging)
    with build.stage("partition"):
        passes = version_pairs(chosen(build.settled.resolved.config))
        found = cut(passed, (*passes, *identity, *_toolchain(build)), ranging)
    compiled = _compiled(build, found.unique, options)
    return _made(traced.constants, found, compiled)


def _made(
    constants: Mapping[str, torch.Tensor], found: Cut, compiled: tuple[CompiledPiece, ...]
) -> Made:
    reads = Reads()
    for piece in compiled:
        reads.merge(piece.reads)
    reported = merged_reports([one.passed for one in found.ranges])
    return Made(
        blobs=_blobs(found, compiled, constants),
        info={
            "passes": reports(reported),
            "pieces": _piece_info(found, compiled),
            "ranges": ranges_info(found),
            "cut": found.parted,
            "constants": constant_info(constants),
        },
        reads=reads.as_dict(),
    )


def _blobs(
    found: Cut, compiled: tuple[CompiledPiece, ...], constants: Mapping[str, torch.Tensor]
) -> dict[str, bytes]:
    blobs = {
        programs.blob_name(range_name(one.sizes) if len(found.ranges) > 1 else ""): (
            programs.encode(one.pieces.program)
        )
        for one in found.ranges
    }
    for piece in compiled:
        blobs[f"piece/{piece.id}{piece.suffix}"] = piece.library
        if piece.external_ops is not None:
            blobs[f"piece/{piece.id}.json"] = piece.external_ops
        if piece.golden is not None:
            blobs[f"golden/{piece.id}"] = piece.golden
    return blobs | {f"constant/{n}": tensor_bytes(data).tobytes() for n, data in constants.items()}


def constant_info(constants: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Geometry of constants for the manifest."""
    return {
        name: {"dtype": NAMES[data.dtype], "shape": list(data.shape)}
        for name, data in constants.items()
    }


def reports(found: Sequence[PassReport]) -> list[dict[str, Any]]:
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
        for r in found
    ]


def _piece_info(found: Cut, compiled: tuple[CompiledPiece, ...]) -> list[dict[str, Any]]:
    return [
        {
            "id": piece.id,
            "calls": found.calls[piece.id],
            "bytes": len(piece.library),
            "golden": piece.golden is not None,
            "notes": list(piece.notes),
            "seconds": round(piece.seconds, 3),
        }
        for piece in compiled
    ]


def _traced(build: Build, ranging: Ranging) -> Traced:
    from vcc.engine.compile.source import trace_request
    from vcc.engine.trace.trace import trace

    with build.stage("trace"):
        try:
            traced = trace(trace_request(build.settled))
        except CompileError:
            _try_declared(build)  # which says it in the words of the declared shapes
            raise
        build.counters.add("traces")
        ranging.dump.graph("traced", traced)
        for note in traced.notes:
            build.events.note(note)
        return traced


def _try_declared(build: Build) -> None:
    """Raise ModelError where a model of transformers does not even run on its inputs."""
    ref = build.settled.request.source.factory
    if isinstance(ref, CheckpointRef):
        from vcc.engine.compile.tried import try_checkpoint

        try_checkpoint(build, ref)


def _toolchain(build: Build) -> tuple[tuple[str, str], ...]:
    wanted = ("compiler", "target", "version.torch", "version.triton")
    return tuple((name, build.code[name]) for name in wanted if name in build.code)


def _options(build: Build) -> tuple[Mapping[str, Any], tuple[tuple[str, str], ...]]:
    """The compiler's settings, and their text for identities."""
    user = dict(build.settled.resolved.config.inductor_config or ())
    cxx = build.code.get("compiler", "")
    return compiler_of(build.settled).options(build.settled.request.target, user, cxx)


def _compiled(
    build: Build, unique: tuple[Piece, ...], options: Mapping[str, Any]
) -> tuple[CompiledPiece, ...]:
    from vcc.engine.compile.pool import compile_pieces, default_jobs

    compiler = compiler_of(build.settled)
    jobs = build.settled.request.jobs or read_environment().workers or default_jobs(unique)
    with build.stage("compile", len(unique)):
        compiler.prepare(build.settled.request.target)
        compiled = compile_pieces(unique, options, jobs, build.events, compiler)
        build.counters.add("compiles", len(compiled))
        return compiled
