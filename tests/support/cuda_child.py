"""Bodies that need a GPU build's answers from torch: run in a fork, which they end with."""

from __future__ import annotations

import importlib
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from vcc.engine.torch_shim.preload import MODULES
from vcc.engine.torch_shim.profiles import PROFILES, DeviceProfile

SM_90 = PROFILES["sm_90"]


def in_a_gpu_build(body: Callable[[], Any], profile: DeviceProfile = SM_90) -> Any:
    """What `body` returns (plain values) in a process that compiles for `profile`.

    Raises:
        AssertionError: with the child's traceback, when the body raised.
    """
    _import_inductor()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(body, profile, write)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        answer = msgspec.msgpack.decode(stream.read() or b"\x80")
    os.waitpid(pid, 0)
    assert "result" in answer, answer.get("error", "the child ended without an answer")
    return answer["result"]


@cache
def _import_inductor() -> None:
    """Once, before the forks; nothing is set up by it."""
    for name in (*MODULES, *(f"torch._inductor.{part}" for part in PARTS), "triton"):
        importlib.import_module(name)


PARTS = ("async_compile", "codegen.triton", "codegen.wrapper_fxir", "runtime.triton_heuristics")


def _child(body: Callable[[], Any], profile: DeviceProfile, write: int) -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            _prepare(Path(folder), profile)
            answer = {"result": body()}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    with os.fdopen(write, "wb") as stream:
        stream.write(msgspec.msgpack.encode(answer))
    os._exit(0)


def _prepare(folder: Path, profile: DeviceProfile) -> None:
    from vcc.engine.config.environment import use_build_folder
    from vcc.engine.torch_shim import cuda_build

    torch.set_num_threads(1)
    use_build_folder(folder)
    cuda_build.install(profile, folder)


def gpu_pieces(
    function: Callable[..., Any],
    shapes: Mapping[str, tuple[int | str, ...]],
    ranges: Mapping[str, tuple[int, int]] | None = None,
    dtype: torch.dtype = torch.bfloat16,
    ops: tuple[str, ...] = (),
    **parameters: tuple[int, ...],
) -> Any:
    """The pieces of `function(module, ...)` on fake CUDA tensors; sizes by name are dynamic.

    Args:
        function: the forward; `parameters` are its module's, by name.
        shapes: of the inputs; a name is an axis.
        ranges: low and high of each axis.
        dtype: of everything.
        ops: where it is cut.
    """
    from torch import nn

    from support.toys import module_of
    from vcc.engine.partition.split import split
    from vcc.engine.torch_shim.fake import fake_mode
    from vcc.engine.trace.trace import Axis, TraceRequest, trace

    mode, known = fake_mode(), dict(ranges or {})
    with mode, torch.device("cuda"):
        made = {
            name: nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
            for name, shape in parameters.items()
        }
        module = module_of(function, **made)
        given = {
            name: torch.empty([_hint(size, known) for size in shape], dtype=dtype)
            for name, shape in shapes.items()
        }
    dynamic = {
        name: {dim: size for dim, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in shapes.items()
    }
    axes = tuple(Axis(name, *bounds) for name, bounds in known.items())
    return split(trace(TraceRequest(module, given, dynamic, axes, {}, mode)), ops, ())


def _hint(size: int | str, ranges: Mapping[str, tuple[int, int]]) -> int:
    return size if isinstance(size, int) else min(16, ranges[size][1])


def fused_seam(spec: Any) -> Any:
    """The work of a decoder's seam in bf16, quantisations fused; inside a body.

    Args:
        spec: a decoder of two layers, whose weights are fp8.
    """
    from support.decoders import SHAPE
    from vcc.engine.config.target import Target
    from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig, PassConfig
    from vcc.engine.graphs.planner.pieces import compile_piece
    from vcc.engine.ops.choice import OpChoice
    from vcc.engine.ops.register import load_ops
    from vcc.engine.partition.split import split
    from vcc.engine.passes.apply import PASSES, apply
    from vcc.engine.passes.base import PassContext
    from vcc.engine.torch_shim.fx_wrapper import cuda_options
    from vcc.engine.trace.decoder import decoder_trace
    from vcc.engine.trace.trace import trace

    load_ops()
    ops = OpChoice(frozenset({"rms_norm", "silu_and_mul"}), "triton")
    with torch.device("cuda"):
        request = decoder_trace(spec, torch.bfloat16, ops, SHAPE)
    fusions = PassConfig(fuse_norm_quant=True, fuse_act_quant=True)
    context = PassContext(CompilationConfig(pass_config=fusions), target=Target.parse("sm_90"))
    traced = apply(trace(request), PASSES, context).traced
    seam = split(traced, DEFAULT_SPLITTING_OPS, ()).unique[1]
    return compile_piece(seam, SM_90, cuda_options({}), strided=range(9)).work


def planned(pieces: Any, **options: Any) -> Any:
    """The work of the only piece."""
    from vcc.engine.graphs.planner.pieces import compile_piece
    from vcc.engine.torch_shim.fx_wrapper import cuda_options

    (piece,) = pieces.unique
    return compile_piece(piece, SM_90, cuda_options({}), **options)
