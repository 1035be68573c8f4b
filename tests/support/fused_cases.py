"""The fused Triton kernels against their parts in plain torch: by the interpreter.

    TRITON_INTERPRET=1 python -m support.fused_cases --dtype float32

The interpreter loses carries when it rounds to fp8: it is given torch's conversion, which is what
devices do. Its products of bf16 are wrong, so bf16 is left to the device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from support.paged import Heads, paged_batch
from vcc.engine.ops import native_fused
from vcc.engine.ops.triton import wrapped, wrapped_fused
from vcc.engine.torch_shim.profiles import PROFILES

FP8 = torch.float8_e4m3fn
STEP, LEAST_STEP = 1 / 8, 2.0**-9
"""A step of fp8 as a share of a value, and the smallest one."""


def near(got: Any, want: Any, dtype: torch.dtype, slack: float = 0.0) -> None:
    """Results within rounding, where fp8 may round to the next step; NaN at the same places.

    `slack` is added: what sums that cancel may differ by before they are rounded.
    """
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
    for one, other in pairs:
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        share = STEP if other.dtype == FP8 else 2.0**-18 if dtype == torch.float32 else 2.0**-9
        floor = slack + (LEAST_STEP if other.dtype == FP8 else share * 4)
        a, b = one.float(), other.float()
        assert torch.equal(a.isnan(), b.isnan())
        far = ((a - b).abs() > share * b.abs() + floor) & ~b.isnan()
        assert not far.any(), (a[far][:4], b[far][:4])


def call(name: str, *arguments: Any) -> Any:
    """An operator by its Triton kernel."""
    module = wrapped if name in wrapped.OPERATORS else wrapped_fused
    return getattr(module, name)(*arguments, through=lambda kernel: kernel)


def checked(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    """One call by both."""
    near(call(name, *arguments), getattr(native_fused, name)(*arguments), dtype)


def odd(x: Tensor) -> Tensor:
    """With a row of zeros and a NaN."""
    x[1], x[2, 3] = 0.0, float("nan")
    return x


def norms(dtype: torch.dtype) -> None:
    scale = torch.tensor(0.02)
    for width, blocks in ((96, (0, 32, 24)), (1, (0,)), (130, (0, 65))):
        x, residual = torch.randn(3, width).to(dtype), torch.randn(3, width).to(dtype)
        x = odd(x) if width > 3 else x
        weight = torch.randn(width).to(dtype)
        checked("rms_norm_quant", dtype, x, weight, scale, 1e-5, 1.0)
        checked("fused_add_rms_norm_quant", dtype, x, residual, weight, scale, 1e-3)
        for block in blocks:
            rest = (1e-5, 0.0, block, 1e-12)
            checked("rms_norm_quant_dynamic", dtype, x, weight, *rest)
            checked("fused_add_rms_norm_quant_dynamic", dtype, x, residual, weight, *rest)


def activations(dtype: torch.dtype) -> None:
    scale = torch.tensor([0.02])
    for width, blocks in ((48, (0, 16, 12)), (2600, (0, 130))):
        x = odd(torch.randn(3, 2 * width).to(dtype))
        checked("silu_and_mul_quant", dtype, x, scale)
        for tanh in (True, False):
            checked("gelu_and_mul", dtype, x, tanh)
            checked("gelu_and_mul_quant", dtype, x, scale, tanh)
        for block in blocks:
            checked("silu_and_mul_quant_dynamic", dtype, x, block, 1e-12)
            checked("gelu_and_mul_quant_dynamic", dtype, x, True, block, 1e-12)


def rotations(dtype: torch.dtype) -> None:
    for dim, half in ((24, 8), (16, 8), (80, 40)):
        q, k, v = torch.randn(3, 8 * dim).to(dtype).split([5 * dim, 2 * dim, dim], -1)
        weights = [torch.randn(dim).to(dtype) for _ in range(2)]
        cos, sin = torch.randn(3, half), torch.randn(3, half)
        checked("qk_norm_rope", dtype, q, k, *weights, cos, sin, dim, 1e-5, 1.0)
        _rope_kv_write(q, k[:, :dim], v, cos, sin, dim)


def _rope_kv_write(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, dim: int) -> None:
    slots = torch.tensor([9, -1, 0], dtype=torch.int32)
    results = []
    from support.triton_ops import TritonOps

    for run in (native_fused.rope_kv_write, TritonOps().rope_kv_write):
        cache, out = torch.ones(2, 3, 4, 1, dim, dtype=q.dtype), torch.zeros_like(q.contiguous())
        run(q, k, v, cos, sin, cache, slots, out, dim)
        results.append((cache, out))
    near(*results, q.dtype)


def projections(dtype: torch.dtype) -> None:
    for width, columns in ((96, 70), (64, 128)):
        x, norm = torch.randn(5, width).to(dtype), torch.randn(width).to(dtype)
        weight, bias = torch.randn(columns, width).to(dtype), torch.randn(columns).to(dtype)
        for given in (None, bias):
            arguments = (x, norm, weight, given, 1e-5, 1.0)
            want = native_fused.rms_norm_linear(*arguments)
            most = (1e-4 if dtype == torch.float32 else 4e-3) * want.abs().max()
            assert (call("rms_norm_linear", *arguments) - want).abs().max() <= most


BATCHES = ([(40, 40), (33, 1)], [(300, 1), (17, 1)])
"""(length, query rows) of sequences: a mixed step, and one of decode alone."""


def attentions(dtype: torch.dtype) -> None:
    """Split and joined, in tiles, with padding; a NaN in the cache reaches whom it should."""
    from support.triton_ops import TritonOps

    ops = TritonOps(replace(PROFILES["sm_90"], sm_count=3))
    for sequences in BATCHES:
        padded = {"padding_rows": 1, "padding_sequences": 1} if sequences is BATCHES[0] else {}
        batch = paged_batch(Heads(4, 2, 32), sequences, dtype, **padded)
        batch.kv_cache[1, batch.block_table[1, 0], 0, 1, 5] = float("nan")
        indices = (batch.block_table, batch.seq_lens, batch.query_start)
        for scale in (torch.tensor(0.01), torch.tensor([1e-4])):  # the second is too small for most
            found = [torch.full(batch.q.shape, 7.0).to(FP8) for _ in range(2)]
            for one, out in zip((native_fused, ops), found, strict=True):
                rest = (scale, 32**-0.5, 37, 20.0)
                one.paged_attention_quant(batch.q, batch.kv_cache, *indices, out, *rest)
            rounding = 2.0**-18 if dtype == torch.float32 else 2.0**-10
            near(found[1], found[0], dtype, rounding / float(scale))


CASES: Mapping[str, Callable[[torch.dtype], None]] = {
    case.__name__: case for case in (norms, activations, rotations, projections, attentions)
}


def convert_as_torch_does() -> None:
    """Let the interpreter convert to fp8 and from it by torch: NaN stays NaN both ways."""
    from triton.runtime import interpreter

    own, wide = interpreter._convert_float, {"fp32": torch.float32, "fp16": torch.float16}

    def convert(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        dense = np.ascontiguousarray(data)
        if str(target) == "fp8e4nv":
            return torch.from_numpy(dense).to(FP8).view(torch.uint8).numpy()
        if str(source) == "fp8e4nv":
            found = torch.from_numpy(dense.view(np.uint8)).view(FP8).to(wide[str(target)]).numpy()
            return found.view(f"uint{8 * found.itemsize}")
        return own(data, source, target, rounding)

    interpreter._convert_float = convert


def main(given: Sequence[str] | None = None) -> int:
    """Run all cases; a failure is a traceback."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--dtype", default="float32")
    dtype = getattr(torch, parser.parse_args(given).dtype)
    print("torch seed", torch.seed())
    convert_as_torch_does()
    for case in CASES.values():
        case(dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
