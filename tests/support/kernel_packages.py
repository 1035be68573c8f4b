"""Stand-ins for packages of kernels: their names and signatures, computed in plain torch.

Each is a real package on disk with its metadata. It records its calls in `calls`, and takes only
what the real one takes: contiguous rows, results where the caller put them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

AITER = """
import torch
from vcc.engine.ops import native_experts as experts
from vcc.engine.ops import native_torch as plain

calls = []


def _dense(*tensors):
    for tensor in tensors:
        assert tensor.is_contiguous(), "rows of it are not contiguous"


def rmsnorm2d_fwd(input, weight, epsilon, use_model_sensitive_rmsnorm=0):
    calls.append("rmsnorm2d_fwd")
    _dense(input, weight)
    assert input.dim() == 2 and input.dtype in (torch.float16, torch.bfloat16)
    return plain.rms_norm(input, weight, epsilon)


def rmsnorm2d_fwd_with_add(
    out, input, residual_in, residual_out, weight, epsilon, use_model_sensitive_rmsnorm=0
):
    calls.append("rmsnorm2d_fwd_with_add")
    _dense(out, input, residual_in, residual_out, weight)
    assert {t.dim() for t in (out, input, residual_in, residual_out)} == {2}
    y, total = plain.fused_add_rms_norm(input, residual_in, weight, epsilon)
    out.copy_(y), residual_out.copy_(total)


def silu_and_mul(out, input):
    calls.append("silu_and_mul")
    _dense(out, input)
    out.copy_(plain.silu_and_mul(input))


def gelu_tanh_and_mul(out, input):
    calls.append("gelu_tanh_and_mul")
    _dense(out, input)
    gate, up = input.float().chunk(2, -1)
    out.copy_(torch.nn.functional.gelu(gate, approximate="tanh") * up)


def topk_softmax(topk_weights, topk_indices, token_expert_indices, gating_output, need_renorm):
    calls.append("topk_softmax")
    _dense(topk_weights, topk_indices, token_expert_indices, gating_output)
    weights, ids = experts.topk_softmax(gating_output, topk_weights.shape[-1], need_renorm)
    topk_weights.copy_(weights), topk_indices.copy_(ids), token_expert_indices.zero_()


def rope_cached_2c_fwd_impl(
    output_x, output_y, input_x, input_y, cos, sin, rotate_style, reuse_freqs_front_part, nope_first
):
    calls.append("rope_cached_2c_fwd_impl")
    assert (rotate_style, reuse_freqs_front_part, nope_first) == (0, True, False)
    tokens, one, _, head_dim = input_x.shape
    assert one == 1 and cos.shape[:3] == (tokens, 1, 1)
    x, y = input_x.reshape(tokens, -1), input_y.reshape(tokens, -1)
    turned = plain.rotary_embedding(x, y, cos[:, 0, 0], sin[:, 0, 0], head_dim)
    output_x.copy_(turned[0].view_as(output_x)), output_y.copy_(turned[1].view_as(output_y))
"""

XPU = """
import torch
from vcc.engine.ops import native_torch as plain

calls = []
library = torch.library.Library("_C", "DEF")


def define(schema, function):
    def run(*arguments):
        calls.append(function.__name__)
        for tensor in arguments:
            assert not isinstance(tensor, torch.Tensor) or tensor.is_contiguous()
        function(*arguments)

    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, run, "CPU")


def rms_norm(result, input, weight, epsilon):
    assert result.dim() == input.dim() == 2
    result.copy_(plain.rms_norm(input, weight, epsilon))


def fused_add_rms_norm(input, residual, weight, epsilon):
    y, total = plain.fused_add_rms_norm(input, residual, weight, epsilon)
    input.copy_(y), residual.copy_(total)


def silu_and_mul(result, input):
    result.copy_(plain.silu_and_mul(input))


def gelu_tanh_and_mul(out, input):
    gate, up = input.float().chunk(2, -1)
    out.copy_(torch.nn.functional.gelu(gate, approximate="tanh") * up)


define("rms_norm(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()", rms_norm)
define(
    "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon) -> ()",
    fused_add_rms_norm,
)
define("silu_and_mul(Tensor! result, Tensor input) -> ()", silu_and_mul)
define("gelu_tanh_and_mul(Tensor! out, Tensor input) -> ()", gelu_tanh_and_mul)
"""

XPU_ROTARY = """
import torch
from vcc.engine.ops import native_torch as plain
from vllm_xpu_kernels._C import calls

library = torch.library.Library("_xpu_C", "DEF")
library.define(
    "apply_rotary_emb(Tensor! output, Tensor input, Tensor cos, Tensor sin, bool is_neox) -> ()"
)


def apply_rotary_emb(output, input, cos, sin, is_neox):
    calls.append("apply_rotary_emb")
    assert is_neox and cos.dtype == input.dtype
    flat = input.flatten(1)
    turned, _ = plain.rotary_embedding(flat, flat, cos, sin, input.shape[-1])
    output.copy_(turned.view_as(output))


library.impl("apply_rotary_emb", apply_rotary_emb, "CPU")
"""

XPU_EXPERTS = """
import torch
from vcc.engine.ops import native_experts as experts
from vllm_xpu_kernels._C import calls

library = torch.library.Library("_moe_C", "DEF")
library.define(
    "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, "
    "Tensor gating_output, bool renormalize, Tensor? bias, Tensor? is_padding) -> ()"
)


def topk_softmax(values, indices, rows, logits, renormalize, bias, is_padding):
    calls.append("topk_softmax")
    assert bias is None and is_padding is None
    weights, ids = experts.topk_softmax(logits, values.shape[-1], renormalize)
    values.copy_(weights), indices.copy_(ids), rows.zero_()


library.impl("topk_softmax", topk_softmax, "CPU")
"""

PACKAGES = {
    "hip": ("amd_aiter", {"aiter/__init__.py": AITER}),
    "xpu": (
        "vllm_xpu_kernels",
        {
            "vllm_xpu_kernels/__init__.py": "",
            "vllm_xpu_kernels/_C.py": XPU,
            "vllm_xpu_kernels/_moe_C.py": XPU_EXPERTS,
            "vllm_xpu_kernels/_xpu_C.py": XPU_ROTARY,
        },
    ),
}
"""Back end -> distribution, and its files."""


def install(folder: Path, backend: str, version: str, patch: pytest.MonkeyPatch) -> None:
    """Put a stand-in on `sys.path` with its metadata, until the test ends."""
    name, files = PACKAGES[backend]
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    )
    patch.syspath_prepend(str(folder))
    for module in [m for m in sys.modules if m.partition(".")[0] in ("aiter", "vllm_xpu_kernels")]:
        patch.delitem(sys.modules, module)
