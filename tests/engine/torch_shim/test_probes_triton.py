"""Probes of launches in a traced graph, and of Triton's compiler in a build for a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import user_kernels
from support.cuda_child import SM_90, in_a_gpu_build

from vcc.cache.errors import CompileError
from vcc.engine.config.target import OLDEST_DRIVER
from vcc.engine.torch_shim import nodes, triton_build, triton_nodes
from vcc.engine.torch_shim.profiles import PROFILES

# --- triton_nodes


def scaled(self: Any, x: torch.Tensor, factor: int = 3) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = torch.library.wrap_triton(user_kernels.constexpr_first)
    kernel[(x.shape[0],)](x, factor, out, x.shape[0] * 64, BLOCK=128)
    return out


def launch_of(function: Any) -> Any:
    from support.toys import rows, traced

    graph = traced(function, {"x": rows(6, 64)}, {"x": {0: "T"}}).graph.graph
    return next(node for node in graph.nodes if triton_nodes.is_triton_launch(node))


def test_triton_nodes_is_triton_launch() -> None:
    assert in_a_gpu_build(lambda: launch_of(scaled) is not None)


def test_triton_nodes_written_by_launch() -> None:
    """Known from the kernel's code; without values any argument may be written."""

    def body() -> Any:
        node = launch_of(scaled)
        given = node.kwargs["kwargs"]
        found = [one is given["out"] for one in triton_nodes.written_by_launch(node)]
        given["out"].meta.clear()
        return [found, len(triton_nodes.written_by_launch(node)), nodes.is_pure(node)]

    assert in_a_gpu_build(body) == [[True], 3, False]


def test_triton_nodes_launch_keywords() -> None:
    """Equal for equal calls, although their numbers differ; other constants differ."""

    def body() -> Any:
        functions = (scaled, scaled, lambda self, x: scaled(self, x, 4))
        return [str(dict(triton_nodes.launch_keywords(launch_of(one)))) for one in functions]

    first, again, other = in_a_gpu_build(body)
    assert first == again != other


# --- triton_build


def compiled(**changes: Any) -> triton_build.CompiledKernel:
    parameters = {"x": "*bf16", "out": "*bf16", "n": "i32", "eps": "fp32"}
    given = {"constants": {"BLOCK": 128}, "aligned": ("x", "out"), "profile": SM_90} | changes
    return triton_build.compile_kernel(user_kernels.with_float, parameters, **given)


def test_triton_build_compile_kernel() -> None:
    kernel = compiled(num_warps=2)
    assert (kernel.function, kernel.warps, kernel.param_bytes) == ("with_float", 2, 40)
    assert kernel.source.module == user_kernels.__name__
    assert kernel.source.constants == {"BLOCK": 128}
    with pytest.raises(CompileError, match="not given exactly"):
        compiled(constants={})


def test_triton_build_gpu_target() -> None:
    assert triton_build.gpu_target(SM_90).arch == 90


def test_triton_build_kernel_of() -> None:
    """What needs memory or a launch that the player does not give is refused."""
    for field, value in (("global_scratch_size", 64), ("num_ctas", 2), ("launch_pdl", True)):
        metadata = SimpleNamespace(name="k", num_warps=4, shared=0, **{field: value})
        made = SimpleNamespace(metadata=metadata, asm={"cubin": b""})
        with pytest.raises(CompileError, match="cannot be launched"):
            triton_build.kernel_of(made, SM_90)


def test_triton_build_block_bytes() -> None:
    """Two pointers that every Triton kernel has come last; csrc's kernels have none."""
    parameters = (("x", "*fp32"), ("count", "i32"))
    assert triton_build.block_bytes(parameters) == 8 + 8 + 2 * 8
    assert triton_build.block_bytes(parameters, 0) == 8 + 4


def test_triton_build_declared_bytes() -> None:
    kernel = compiled()
    assert triton_build.declared_bytes(kernel.cubin, "with_float", SM_90) == kernel.param_bytes
    with pytest.raises(CompileError, match="no function other"):
        triton_build.declared_bytes(kernel.cubin, "other", SM_90)


def test_triton_build_toolkit() -> None:
    major, minor = triton_build.toolkit(SM_90).split(".")
    assert int(major) >= 12
    assert minor.isdigit()


def test_triton_build_driver_floor() -> None:
    floor = triton_build.driver_floor(SM_90)
    assert floor >= OLDEST_DRIVER
    assert floor // 1000 == int(triton_build.toolkit(SM_90).split(".")[0])
    assert triton_build.driver_floor(PROFILES["sm_120"]) >= 12080
