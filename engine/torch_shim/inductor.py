"""AOTInductor and its configuration: one piece in, the bytes of its library out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

FIXED_OPTIONS: Mapping[str, Any] = {
    "aot_inductor.package": True,
    "aot_inductor.check_lowerbound": False,
    "aot_inductor.precompile_headers": False,
    "compile_threads": 1,
    "cpp.dynamic_threads": True,
    "cpp.simdlen": 256,
    "fx_graph_cache": False,
    "joint_graph_constant_folding": False,
}
"""Settings of every CPU build; together with `MARCH` they are part of a piece's identity."""

MARCH = "x86-64-v3"


def option_pairs(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Inductor options as labelled text for keys and identities."""
    merged = {**FIXED_OPTIONS, "cpp.march": MARCH, **options}
    return tuple((f"inductor.{name}", repr(value)) for name, value in sorted(merged.items()))


def compile_library(
    graph: GraphModule, arguments: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> list[Path]:
    """Compile a graph with AOTInductor and return the files it wrote.

    Args:
        graph: out-buffer form, not functionalised.
        arguments: fake tensors that carry ranges and hints.
        options: user settings over `FIXED_OPTIONS`.
    """
    from torch._inductor import aot_compile, config

    # 2.11 and 2.12 know no cpp.march: there the flag is replaced in the compile command.
    march = {"cpp.march": MARCH} if hasattr(config.cpp, "march") else {}
    files: Any = aot_compile(
        graph, tuple(arguments), options={**FIXED_OPTIONS, **march, **options}
    )
    names = [files] if isinstance(files, str) else files
    return [Path(name) for name in names if isinstance(name, str)]
