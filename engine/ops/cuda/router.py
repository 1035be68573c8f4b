"""Launches of the router: the k likeliest experts of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.engine.graphs.planner.arithmetic import ceildiv
from vcc.engine.ops.cuda.call import (
    POINTERS,
    CudaCall,
    Parameter,
    Result,
    Tensor,
    refused,
    row_stride,
    short_type,
)

MOST_EXPERTS, MOST_CHOSEN = 512, 32
THREADS, ROWS = 256, 8
"""Threads of a block, and the rows that they take: a warp each."""


def router_call(op: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> CudaCall:
    """`topk_softmax` and `topk_sigmoid`.

    Raises:
        CompileError: more experts, or more of them chosen, than a warp takes.
    """
    logits, top_k = tensors["logits"], int(numbers["top_k"])
    most = min(MOST_CHOSEN, logits.width)
    if len(logits.shape) != 2 or logits.width > MOST_EXPERTS or not 0 < top_k <= most:
        limits = f"kernels take {MOST_CHOSEN} of {MOST_EXPERTS} at most"
        raise refused(op, f"{top_k} of {logits.width} experts; {limits}")
    short = short_type(op, logits, "logits")
    shape = (logits.shape[0], top_k)
    return CudaCall(
        op,
        f"vcc_{op}_{short}",
        ceildiv(logits.rows, ROWS),
        THREADS,
        (
            Parameter("logits", POINTERS[logits.dtype], "logits"),
            Parameter("weights", "*fp32", "weights", True),
            Parameter("ids", "*i32", "ids", True),
            Parameter("rows", "i32", logits.rows),
            Parameter("experts", "i32", logits.width),
            Parameter("top_k", "i32", top_k),
            Parameter("renormalise", "i32", int(numbers["renormalise"])),
            Parameter("stride", "i64", row_stride(op, logits, "logits")),
        ),
        (Result("weights", "float32", shape), Result("ids", "int32", shape)),
    )
