"""AITER, AMD's kernels: PyPI `amd-aiter`, module `aiter`; read from release 0.1.7.post2.dev18.

Its norms are those of Composable Kernel, which sum in fp32 and take matrices; `rms_norm_cu` of the
same package sums squares in the element type. There is no weight offset in this release, and its
activations read contiguous rows of 16-bit values.
"""

from __future__ import annotations

from vcc.engine.ops.surfaces.row import (
    Arg,
    Const,
    Limit,
    Out,
    Row,
    Scratch,
    Sizes,
    Strides,
    View,
    table,
)

MINIMUM = "0.1.7"
ARCHS = ("gfx90a", "gfx942", "gfx950")
HALVES = ("bfloat16", "float16")
NEOX = Const(0)
PLAIN_WEIGHT = (Limit("weight_offset", equals=0),)


def router_scratch(sizes: Sizes) -> int:
    """Bytes that its router allocates, where `experts` is no power of two up to 256."""
    experts = sizes["experts"]
    small = experts & (experts - 1) == 0 and experts <= 256
    return 0 if small else 4 * sizes["tokens"] * experts


ROWS = table(
    Row(
        "rms_norm",
        "aiter:rmsnorm2d_fwd",
        {"input": Arg("x", View.MATRIX), "weight": Arg("weight"), "epsilon": Arg("eps")},
        returns=True,
        dtypes=HALVES,
        strides=Strides.CONTIGUOUS,
        limits=PLAIN_WEIGHT,
        archs=ARCHS,
        minimum=MINIMUM,
    ),
    Row(
        "fused_add_rms_norm",
        "aiter:rmsnorm2d_fwd_with_add",
        {
            "out": Out(0, View.MATRIX),
            "input": Arg("x", View.MATRIX),
            "residual_in": Arg("residual", View.MATRIX),
            "residual_out": Out(1, View.MATRIX),
            "weight": Arg("weight"),
            "epsilon": Arg("eps"),
        },
        dtypes=HALVES,
        strides=Strides.CONTIGUOUS,
        limits=PLAIN_WEIGHT,
        archs=ARCHS,
        minimum=MINIMUM,
    ),
    Row(
        "silu_and_mul",
        "aiter:silu_and_mul",
        {"out": Out(0), "input": Arg("x")},
        dtypes=HALVES,
        strides=Strides.CONTIGUOUS,
        archs=ARCHS,
        minimum=MINIMUM,
    ),
    Row(
        "gelu_and_mul",
        "aiter:gelu_tanh_and_mul",
        {"out": Out(0), "input": Arg("x")},
        dtypes=HALVES,
        strides=Strides.CONTIGUOUS,
        limits=(Limit("tanh", equals=1),),
        archs=ARCHS,
        minimum=MINIMUM,
    ),
    Row(
        "topk_softmax",
        "aiter:topk_softmax",
        {
            "topk_weights": Out(0),
            "topk_indices": Out(1),
            "token_expert_indices": Scratch(1),
            "gating_output": Arg("logits"),
            "need_renorm": Arg("renormalise"),
        },
        implied=("top_k",),
        dtypes=("float32", *HALVES),
        strides=Strides.CONTIGUOUS,
        archs=ARCHS,
        minimum=MINIMUM,
        workspace=router_scratch,
    ),
    Row(
        "rotary_embedding",
        "aiter:rope_cached_2c_fwd_impl",
        {
            "output_x": Out(0, View.SBHD),
            "output_y": Out(1, View.SBHD),
            "input_x": Arg("q", View.SBHD),
            "input_y": Arg("k", View.SBHD),
            "cos": Arg("cos", View.ANGLES),
            "sin": Arg("sin", View.ANGLES),
            "rotate_style": NEOX,
            "reuse_freqs_front_part": Const(True),
            "nope_first": Const(False),
        },
        dtypes=("float32", *HALVES),
        archs=ARCHS,
        minimum=MINIMUM,
    ),
)
"""Operator -> function of `aiter`."""
