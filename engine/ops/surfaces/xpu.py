"""vllm-xpu-kernels, kernels for Intel GPUs: PyPI `vllm-xpu-kernels`; read from release 0.1.12.1.

Importing its extension modules registers operators of torch; results go into tensors of the
caller's, or over the input. There is no weight offset in `rms_norm`, which rounds once more before
it multiplies by the weight, as transformers does. Its rotation computes in the element type of the
activations: only fp32 keeps what ours promises.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcc.engine.ops.surfaces.row import (
    Arg,
    Const,
    InOut,
    Limit,
    Out,
    Row,
    Scratch,
    Strides,
    Value,
    View,
    table,
)

MINIMUM = "0.1.12"
FLOATS = ("float32", "bfloat16", "float16")
PLAIN_WEIGHT = (Limit("weight_offset", equals=0),)

MODULES = ("vllm_xpu_kernels._C", "vllm_xpu_kernels._moe_C", "vllm_xpu_kernels._xpu_C")
"""What is imported before the operators are there."""


def _rotated(name: str, index: int) -> Mapping[str, Value]:
    return {
        "output": Out(index, View.HEADS),
        "input": Arg(name, View.HEADS),
        "cos": Arg("cos"),
        "sin": Arg("sin"),
        "is_neox": Const(True),
    }


ROWS = table(
    Row(
        "rms_norm",
        "_C::rms_norm",
        {
            "result": Out(0, View.MATRIX),
            "input": Arg("x", View.MATRIX),
            "weight": Arg("weight"),
            "epsilon": Arg("eps"),
        },
        dtypes=FLOATS,
        strides=Strides.CONTIGUOUS,
        limits=PLAIN_WEIGHT,
        minimum=MINIMUM,
    ),
    Row(
        "fused_add_rms_norm",
        "_C::fused_add_rms_norm",
        {
            "input": InOut("x", 0),
            "residual": InOut("residual", 1),
            "weight": Arg("weight"),
            "epsilon": Arg("eps"),
        },
        dtypes=FLOATS,
        strides=Strides.CONTIGUOUS,
        limits=PLAIN_WEIGHT,
        minimum=MINIMUM,
    ),
    Row(
        "silu_and_mul",
        "_C::silu_and_mul",
        {"result": Out(0), "input": Arg("x")},
        dtypes=FLOATS,
        strides=Strides.CONTIGUOUS,
        minimum=MINIMUM,
    ),
    Row(
        "gelu_and_mul",
        "_C::gelu_tanh_and_mul",
        {"out": Out(0), "input": Arg("x")},
        dtypes=FLOATS,
        strides=Strides.CONTIGUOUS,
        limits=(Limit("tanh", equals=1),),
        minimum=MINIMUM,
    ),
    Row(
        "topk_softmax",
        "_moe_C::topk_softmax",
        {
            "topk_weights": Out(0),
            "topk_indices": Out(1),
            "token_expert_indices": Scratch(1),
            "gating_output": Arg("logits"),
            "renormalize": Arg("renormalise"),
            "bias": Const(None),
            "is_padding": Const(None),
        },
        implied=("top_k",),
        dtypes=("float32",),
        strides=Strides.CONTIGUOUS,
        minimum=MINIMUM,
    ),
    Row(
        "rotary_embedding",
        "_xpu_C::apply_rotary_emb",
        _rotated("q", 0),
        again=(_rotated("k", 1),),
        dtypes=("float32",),
        strides=Strides.CONTIGUOUS,
        minimum=MINIMUM,
    ),
)
"""Operator -> operator of the package."""
