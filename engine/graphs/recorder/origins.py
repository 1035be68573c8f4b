"""Whose code a recorded cubin is: libraries of a vendor may not be handed on as one's own code is.

The recorder keeps every module that the driver loads, and the driver does not say whose it is. The
names of its functions do. What is neither known as open nor as a vendor's counts as a vendor's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vcc.engine.graphs.table.types import Kernel

UNKNOWN = "an unknown library"

OWN_KERNELS = frozenset(
    {
        *("advance", "convolution", "decode_attention", "fused_add_rms_norm", "fused_attention"),
        *("kv_write", "linear", "prefill_attention", "product", "reduce_attention"),
        *("reduce_splits", "rms_norm", "rms_norm_linear", "rotary_embedding"),
        *("sample_choose", "sample_gather", "sample_levels", "sample_scan"),
        *("silu_and_mul", "gated", "gated_quant", "norm_quant"),
        *("qk_norm_rope", "rope_kv_write", "topk_softmax", "topk_sigmoid"),
        *("expert_down", "expert_sum", "expert_tiles", "expert_up"),
        *("lora_expand", "lora_shrink", "scaled_linear"),
        *("scaled_expert_down", "scaled_expert_up", "spread_scales"),
    }
)
"""Triton kernels of vcc's own operators."""

# Mangled names write a name after its length: `2at6native` is at::native.
_OPEN = re.compile(
    r"triton_|vcc_|.*(2at6native|3c10|N2at|13pytorch_flash|15PyTorchMemEffAt|14at_cuda_detail)"
)
_VENDORS = (
    (re.compile(r"nvjet|.*8cublasLt|.*cublasLt"), "cuBLASLt"),
    (re.compile(r".*(cudnn|CUDNN)"), "cuDNN"),
    (re.compile(r".*nccl"), "NCCL"),
    (re.compile(r".*cusparse"), "cuSPARSE"),
    (re.compile(r".*cublas"), "cuBLAS"),
    (re.compile(r".*(gemv(2T|2N|NSP|x)|gemmk1_kernel|splitKreduce_kernel|xmma_gemm)"), "cuBLAS"),
    (re.compile(r"(volta|turing|ampere|hopper|sm\d+)_\w*gemm"), "cuBLAS"),
    (re.compile(r".*cutlass_\d+_(tensorop|simt|wmma)"), "cuBLAS"),
)
"""What functions of a library are called; the first that fits says it."""


def vendor_cubins(kernels: Iterable[Kernel]) -> list[dict[str, str]]:
    """What `info.vendor_cubins` of a manifest lists: digest and library, sorted by digest.

    Args:
        kernels: of all tables of an artifact.
    """
    names: dict[str, set[str]] = {}
    for kernel in kernels:
        names.setdefault(kernel.cubin, set()).add(kernel.function)
    found = {digest: library_of(functions) for digest, functions in names.items()}
    return [{"digest": d, "library": library} for d, library in sorted(found.items()) if library]


def library_of(functions: Iterable[str]) -> str:
    """The library that a module with these functions is from; empty for open code.

    Args:
        functions: mangled names. A module has one origin, so one that is a vendor's decides.
    """
    found = {_library(name) for name in functions}
    named = sorted(found - {"", UNKNOWN})
    if named:
        return named[0]
    return UNKNOWN if UNKNOWN in found else ""


def _library(name: str) -> str:
    if name in OWN_KERNELS or _OPEN.match(name):
        return ""
    return next((library for pattern, library in _VENDORS if pattern.match(name)), UNKNOWN)
