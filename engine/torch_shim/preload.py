"""Load Inductor once, before workers are forked, so that each starts with it in memory."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

MODULES = (
    "torch._inductor.compile_fx",
    "torch._inductor.codecache",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "torch._inductor.cpp_builder",
    "torch._inductor.distributed_autotune",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.lowering",
    "torch._inductor.scheduler",
    "torch._inductor.select_algorithm",
)
"""What a compile imports in the end; a release that lacks one of them imports it when needed."""

ISA: Mapping[str, str] = {"x86-64-v3": "VecAVX2", "x86-64-v4": "VecAVX512"}
"""Inductor's vector instruction set for each CPU level."""


def preload_inductor(level: str) -> None:
    """Import Inductor, set up its patterns, and pin the instruction set of `level`.

    Unpinned, Inductor compiles test programs for every instruction set that it knows, in each
    process anew, and decides by what the building machine can do.
    """
    for name in MODULES:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    _pin(level)
    _set_up_patterns()


def _pin(level: str) -> None:
    from torch._inductor import config, cpu_vec_isa

    isa = getattr(cpu_vec_isa, ISA[level])()
    cast(Any, cpu_vec_isa).valid_vec_isa_list = lambda: [isa]
    config.cpp.vec_isa_ok = True


def _set_up_patterns() -> None:
    import torch
    from torch._inductor.fx_passes import joint_graph, post_grad

    # Called exactly as compiling calls them: set up twice, a pattern is refused as a duplicate.
    post_grad.lazy_init()
    joint_graph.lazy_init(torch.device("cpu"))
