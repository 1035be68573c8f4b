"""Inductor's settings of every build, as tables: what its code leaves out, what is pinned.

They stand in the code key one by one (`inductor.*`), so a key says which checks code was compiled
without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ConfigError, DeviceError

from .modes import Platform
from .target import Target

LEAST_THREADS = 2

FIXED_OPTIONS: Mapping[str, Any] = {
    "aot_inductor.check_lowerbound": False,
    "aot_inductor.enable_frame_pointer": False,
    "aot_inductor.enable_line_tables": False,
    "aot_inductor.model_name_for_generated_files": "piece",
    "aot_inductor.package": True,
    "aot_inductor.precompile_headers": False,
    "compile_threads": 1,
    "cpp.dynamic_threads": True,
    "cpp.threads": LEAST_THREADS,  # for what it marks as work of one; see `check_threads`
    "fx_graph_cache": False,
    "joint_graph_constant_folding": False,
}
"""Settings of every CPU build; those that a torch release does not know are left out."""

CPU_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "x86-64-v3": {"cpp.march": "x86-64-v3", "cpp.simdlen": 256},
    "x86-64-v4": {"cpp.march": "x86-64-v4", "cpp.simdlen": 512},
}
"""Settings that pin the instruction set, by CPU level."""

CUDA_OPTIONS: Mapping[str, Any] = {
    "alignment_asserts": False,
    "combo_kernels": True,  # kernels side by side in one launch, such as rope of q and of k
    "compile_threads": 1,
    "epilogue_fusion_user_defined_triton_kernel": False,
    "fx_graph_cache": False,
    "fx_wrapper": True,
    "joint_graph_constant_folding": False,
    "shape_padding": False,  # it times products of odd sizes, which needs a device
    "size_asserts": False,
    "triton.autotune_at_compile_time": False,
    "use_static_cuda_launcher": False,
    "use_static_triton_launcher": False,
}
"""No benchmark, so the first configuration of each kernel is kept; options that a torch release
does not know are left out."""


def build_options(target: Target, user: Mapping[str, Any]) -> dict[str, Any]:
    """All Inductor options of a build for a target; the user's win.

    For a CPU level that no code is made for these are the fixed ones: `check_level` refuses it.
    """
    if target.platform is Platform.CUDA:
        return {**CUDA_OPTIONS, **user}
    return {**FIXED_OPTIONS, **CPU_OPTIONS.get(target.arch, {}), **user}


def check_threads(user: Mapping[str, Any]) -> None:
    """Refuse a number of threads for which Inductor writes wrong code beside dynamic ones.

    It marks what has no loop as work of one thread where it counts on several.

    Raises:
        ConfigError: the user's number is below two.
    """
    if user.get("cpp.threads", LEAST_THREADS) < LEAST_THREADS:
        raise ConfigError(
            f'Inductor\'s option "cpp.threads" cannot be {user["cpp.threads"]}',
            "each thread of a kernel would do for itself what has no loop, and write it again",
            "leave it out: code takes as many threads as there are where it runs",
        )


def check_level(level: str) -> None:
    """Refuse a CPU level that no code is made for.

    Raises:
        DeviceError: with those that there are.
    """
    if level not in CPU_OPTIONS:
        raise DeviceError(
            f"cannot compile for CPU level {level}",
            f"pieces are made for {', '.join(CPU_OPTIONS)}",
            "use --compile none there: the operators run without compiled pieces",
        )


def option_pairs(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Inductor options as labelled text for keys and identities."""
    return tuple((f"inductor.{name}", repr(value)) for name, value in sorted(options.items()))
