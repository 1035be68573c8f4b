"""Each fused operator as a piece for a GPU: only for a process that builds for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from support.toys import module_of
from vcc.engine.config.target import Target
from vcc.engine.ops.register import load_ops
from vcc.engine.partition.split import split
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.launches import lower
from vcc.engine.torch_shim.fake import fake_mode
from vcc.engine.trace.trace import Axis, TraceRequest, trace
from vcc.engine.types import Pieces, Traced

WIDTH = 256
SM_90 = PassContext(target=Target.parse("sm_90"))

CALLS: Mapping[str, Callable[[Any, Any], Any]] = {
    "rms_norm_quant": lambda m, v: m.rms_norm_quant(v["x"], v["w"], v["s"], 1e-6),
    "rms_norm_quant_dynamic": lambda m, v: m.rms_norm_quant_dynamic(v["x"], v["w"], 1e-6),
    "fused_add_rms_norm_quant": lambda m, v: m.fused_add_rms_norm_quant(
        v["x"], v["y"], v["w"], v["s"], 1e-6
    ),
    "fused_add_rms_norm_quant_dynamic": lambda m, v: m.fused_add_rms_norm_quant_dynamic(
        v["x"], v["y"], v["w"], 1e-6, 0.0, 128, 1e-12
    ),
    "silu_and_mul_quant": lambda m, v: m.silu_and_mul_quant(v["x"], v["s"]),
    "silu_and_mul_quant_dynamic": lambda m, v: m.silu_and_mul_quant_dynamic(v["x"], 128),
    "gelu_and_mul": lambda m, v: m.gelu_and_mul(v["x"]),
    "gelu_and_mul_quant": lambda m, v: m.gelu_and_mul_quant(v["x"], v["s"], True),
    "gelu_and_mul_quant_dynamic": lambda m, v: m.gelu_and_mul_quant_dynamic(v["x"]),
    "qk_norm_rope": lambda m, v: m.qk_norm_rope(
        v["x"], v["y"], v["h"], v["h"], v["c"], v["c"], 64, 1e-6
    ),
    "rms_norm_linear": lambda m, v: m.rms_norm_linear(v["x"], v["w"], v["p"], None, 1e-6),
    "topk_softmax": lambda m, v: m.topk_softmax(v["x"], 4, True),
    "topk_sigmoid": lambda m, v: m.topk_sigmoid(v["x"], 4, False),
    "moe_experts": lambda m, v: m.moe_experts(v["x"], v["g"], v["d"], v["r"], v["i"]),
}


def lowered(dtype: torch.dtype) -> dict[str, Pieces]:
    """The pieces of each operator's Triton form."""
    load_ops()
    return {name: split(_lowered(function, dtype), (), ()) for name, function in CALLS.items()}


def _lowered(function: Callable[[Any, Any], Any], dtype: torch.dtype) -> Traced:
    mode = fake_mode()
    with mode, torch.device("cuda"):
        given = {name: torch.empty(shape, dtype=kind) for name, shape, kind in _inputs(dtype)}
    module = module_of(lambda m, **values: function(torch.ops.vcc, values))
    module.forward = _forward(function)  # type: ignore[method-assign]
    dynamic = {name: {0: "T"} for name in ("x", "y", "c", "r", "i")}
    graph = trace(TraceRequest(module, given, dynamic, (Axis("T", 1, 512),), {}, mode))
    assert lower(graph.graph.graph, frozenset(), SM_90, 0) == 1
    graph.graph.recompile()
    return graph


def _forward(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def forward(
        x: Any, y: Any, w: Any, s: Any, h: Any, c: Any, p: Any, g: Any, d: Any, r: Any, i: Any
    ) -> Any:
        values = {"x": x, "y": y, "w": w, "s": s, "h": h, "c": c, "p": p}
        return function(torch.ops.vcc, values | {"g": g, "d": d, "r": r, "i": i})

    return forward


def _inputs(dtype: torch.dtype) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
    fp32 = torch.float32
    plain = [("x", (16, WIDTH)), ("y", (16, WIDTH)), ("w", (WIDTH,))]
    found = [(name, shape, dtype) for name, shape in plain]
    found += [("s", (1,), fp32), ("h", (64,), dtype), ("c", (16, 32), fp32)]
    found += [
        ("p", (96, WIDTH), dtype),
        ("g", (8, 128, WIDTH), dtype),
        ("d", (8, WIDTH, 64), dtype),
    ]
    return [*found, ("r", (16, 2), fp32), ("i", (16, 2), torch.int32)]
