"""A KV cache in fp8 on a device: both kinds of kernels, and a played model against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.cuda_cases import cache_cases, results
from support.fp8_checkpoints import fp8_reference, make_fp8_checkpoint
from support.kernel_cases import Backend
from support.kv_fp8 import SCALES, add_scales, kv_logits
from support.kv_fp8_cases import FP8, attention, near, writes
from support.numbers import assert_quantised
from support.played import Played
from support.triton_ops import TritonOps

from vcc.engine.ops.cuda import cubins, eager
from vcc.engine.ops.register import load_ops
from vcc.engine.torch_shim.profiles import PROFILES

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def device_with_fp8() -> str:
    """The device's target; skips where it has no fp8."""
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) < (8, 9):
        pytest.skip("this device has no fp8")
    return f"sm_{major}{minor}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triton_stores_what_plain_torch_does(device_with_fp8: str, dtype: torch.dtype) -> None:
    print("torch seed", torch.seed())
    ops = TritonOps(PROFILES[device_with_fp8], interpreted=False)
    writes(Backend(ops, dtype, "cuda", small=True))


def test_triton_attends_to_it_within_the_rule(device_with_fp8: str) -> None:
    print("torch seed", torch.seed())
    ops = TritonOps(PROFILES[device_with_fp8], interpreted=False)
    attention(Backend(ops, torch.bfloat16, "cuda", small=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_of_csrc_store_what_plain_torch_does(
    device_with_fp8: str, dtype: torch.dtype
) -> None:
    backend = load_ops()
    if backend.name != "cpu":
        pytest.skip(backend.reason)
    if why := cubins.missing(device_with_fp8):
        pytest.skip(why)
    assert eager.usable(device_with_fp8)
    for case in cache_cases(dtype):
        moved = case.to("cuda")
        got, wanted = results(getattr(torch.ops.vcc, case.op), moved), case.wanted()
        for mine, want in zip(got, wanted, strict=True):
            if want.dtype == FP8:
                near(mine.cpu(), want)
            else:
                torch.testing.assert_close(mine.cpu(), want, rtol=2.0**-7, atol=2.0**-6)


@pytest.mark.parametrize("custom", [None, '{"custom_ops": ["all"]}'], ids=["plain", "fused"])
def test_a_played_model_keeps_to_the_rule(
    device_with_fp8: str, custom: str | None, tmp_path: Path
) -> None:
    """Scales of a checkpoint, fp8 weights too; kernels apart, and the rotation in the KV write."""
    directory = make_fp8_checkpoint(tmp_path / "model", "llama", "tensor-static")
    models = {one: fp8_reference(directory, "tensor-static", one) for one in DTYPES[:2]}
    add_scales(directory, SCALES)
    options = {} if custom is None else {"config": custom}
    played = Played(
        directory,
        device_with_fp8,
        lambda ids, dtype: kv_logits(models[dtype], ids, SCALES),
        options,
    )
    played.check(tmp_path, assert_quantised)
