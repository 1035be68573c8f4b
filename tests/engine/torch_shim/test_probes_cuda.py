"""Probes of what a build for a GPU tells torch and Triton; in forks where the answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.cuda_child import SM_90, gpu_pieces, in_a_gpu_build

from vcc.cache.errors import ConfigError, DeviceError
from vcc.engine import native
from vcc.engine.torch_shim import (
    cuda_build,
    cuda_guard,
    fx_wrapper,
    nodes,
)

ROWS = {"T": (1, 512)}
CPU_BUILD = not torch._C._has_cuda


# --- cuda_build, cuda_guard


def test_cuda_build_install() -> None:
    """Fake CUDA tensors can be made and computed with, and torch and Triton see the profile."""

    def body() -> Any:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            made = torch.empty(4, 8, device="cuda") @ torch.empty(8, 2, device="cuda")
        return [str(made.device.type), list(made.shape), torch.cuda.is_available()]

    assert in_a_gpu_build(body) == ["cuda", [4, 2], True]


def test_cuda_build_forget_answers() -> None:
    """What a build for the CPU heard about Triton here is not what one for a GPU hears."""
    from torch.utils._triton import has_triton

    has_triton()
    assert in_a_gpu_build(lambda: bool(has_triton()))


def test_cuda_build_leaves_this_process_alone() -> None:
    in_a_gpu_build(lambda: None)
    assert torch.cuda.get_device_properties.__module__ == "torch.cuda"


def test_cuda_build_device_properties() -> None:
    """The fields that torch's own class has, as far as code generation reads them."""
    found = cuda_build.device_properties(SM_90)
    assert (found.major, found.minor, found.multi_processor_count) == (9, 0, 132)
    assert found.shared_memory_per_block_optin == 227 << 10


def test_cuda_build_answer_torch() -> None:
    def body() -> Any:
        from torch._inductor.runtime.hints import DeviceProperties

        seen = DeviceProperties.create(torch.device("cuda", 0))
        return [seen.cc, seen.multi_processor_count, seen.warp_size, seen.max_threads_per_block]

    assert in_a_gpu_build(body) == [90, 132, 32, 1024]


def test_cuda_build_answer_triton() -> None:
    def body() -> Any:
        from triton.runtime import driver

        target = driver.active.get_current_target()
        return [target.backend, target.arch, target.warp_size]

    assert in_a_gpu_build(body) == ["cuda", 90, 32]


def test_cuda_build_keep_patterns_off_the_device() -> None:
    """The functions are where they were; set up anew, they would ask for the device."""

    def body() -> Any:
        from torch._inductor.fx_passes import fuse_attention, joint_graph

        return [fuse_attention._sfdp_init.__name__, hasattr(joint_graph, "lazy_init")]

    assert in_a_gpu_build(body) == ["_skipped", True]


def test_cuda_guard_install_guard() -> None:
    def body() -> Any:
        return torch._C._has_cuda or cuda_guard.install_guard(Path("/")) is None

    assert in_a_gpu_build(body)


@pytest.mark.skipif(not CPU_BUILD, reason="a CUDA build of torch has a guard of its own")
def test_cuda_guard_is_compiled_for_another_torch(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cuda_guard, "guard_name", lambda: "vcc_guard-0.0")
    assert cuda_guard._compiled(tmp_path).is_file()
    monkeypatch.setattr(cuda_guard.shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="no C\\+\\+ compiler"):
        cuda_guard._compiled(tmp_path)


def test_cuda_guard_guard_name() -> None:
    """The library of this install belongs to this torch, or the build of torch needs none."""
    found = native.library(cuda_guard.guard_name())
    assert found is not None or not CPU_BUILD


# --- fx_wrapper


def test_fx_wrapper_launch() -> None:
    fx_wrapper.launch("kernel", (1, 1, 1), {}, ())


def test_fx_wrapper_cuda_options() -> None:
    """Each is known to this torch, except those of other releases."""
    from torch._inductor import config

    made = fx_wrapper.cuda_options({"max_autotune": True})
    assert made["fx_wrapper"]
    assert made["max_autotune"]
    unknown = {name for name in fx_wrapper.CUDA_OPTIONS if not fx_wrapper._known(config, name)}
    assert unknown <= {
        "epilogue_fusion_user_defined_triton_kernel",
        "use_static_cuda_launcher",
        "use_static_triton_launcher",
    }


def test_fx_wrapper_compile_to_graph() -> None:
    """A piece becomes allocations and launches, and an unknown option is refused by name."""
    from vcc.engine.graphs.planner.pieces import returning
    from vcc.engine.partition.canonical import fake_arguments

    def body() -> Any:
        (piece,) = gpu_pieces(lambda self, x: x * 2, {"x": ("T", 64)}, ROWS).unique
        given = (returning(piece), fake_arguments(piece)[:1])
        with pytest.raises(ConfigError, match="no_such_option"):
            fx_wrapper.compile_to_graph(*given, {"no_such_option": 1}, SM_90)
        made = fx_wrapper.compile_to_graph(*given, fx_wrapper.cuda_options({}), SM_90)
        (node,) = (n for n in made.graph.graph.nodes if n.target is fx_wrapper.launch)
        kernel = made.kernels[node.args[0]]
        return [[name for name, _ in kernel.parameters], list(node.args[2]), list(node.args[3])]

    names, bound, written = in_a_gpu_build(body)
    assert names == bound == ["in_ptr0", "out_ptr0", "xnumel"]
    assert written == ["out_ptr0"]


def test_fx_wrapper_rewrites_the_graph_behind_inductors_own_passes() -> None:
    """Products of batches are still calls of aten then, with fake values of their arguments."""
    from vcc.engine.graphs.planner.pieces import returning
    from vcc.engine.partition.canonical import fake_arguments

    seen = []

    def rewrite(graph: Any) -> None:
        calls = [n for n in graph.nodes if n.target is torch.ops.aten.bmm.default]
        seen.extend(list(one.args[1].meta["val"].shape)[1:] for one in calls)

    def body() -> Any:
        (piece,) = gpu_pieces(lambda self, x: x @ x.mT, {"x": ("T", 8, 64)}, ROWS).unique
        given = (returning(piece), fake_arguments(piece)[:1])
        fx_wrapper.compile_to_graph(*given, fx_wrapper.cuda_options({}), SM_90, rewrite)
        return seen

    assert in_a_gpu_build(body) == [[64, 8]]


def test_fx_wrapper_named_launches() -> None:
    from torch._inductor.codegen import wrapper_fxir

    names = ("_generate_triton_call", "_generate_unbacked_symbol_defs")
    before = [getattr(wrapper_fxir.FxConverter, name) for name in names]
    with fx_wrapper.named_launches():
        assert [getattr(wrapper_fxir.FxConverter, name) for name in names] != before
    assert [getattr(wrapper_fxir.FxConverter, name) for name in names] == before


def test_fx_wrapper_plain_addends() -> None:
    """The check that a fusion asks stands where it stood."""
    from torch._inductor.fx_passes import post_grad

    before = post_grad.should_prefer_unfused_addmm
    with fx_wrapper.plain_addends():
        assert post_grad.should_prefer_unfused_addmm is not before
    assert post_grad.should_prefer_unfused_addmm is before


# --- nodes


def test_nodes_argument_names() -> None:
    from vcc.engine.ops.register import load_ops, operator

    load_ops()
    assert nodes.argument_names(operator("vcc::kv_write")) == (
        *("k", "v", "kv_cache", "slot_mapping", "kv_scale"),
    )
