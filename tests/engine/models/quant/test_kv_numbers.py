"""A KV cache in fp8 against transformers with keys and values quantised in the same way.

The reference is fp32, its peer bf16, and the bounds those of activations in fp8 (docs/decisions,
bounds of fp8).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from support.checkpoints import make_checkpoint
from support.eager_step import EagerStepper, load_decoder, run_in_steps
from support.fp8_checkpoints import fp8_reference, make_fp8_checkpoint
from support.kv_fp8 import SCALES, add_scales, kv_logits, plain_model
from support.numbers import assert_quantised

from vcc.engine.config.modes import KvDtype

DTYPES = (torch.float32, torch.bfloat16)
PROMPTS = (1, 17, 200)
CHUNKS = [{200: 70}, {200: 60, 17: 9}, {200: 1, 17: 1}, {200: 1, 1: 1}]
"""A chunk, a chunk beside a prompt, decode steps, and both: what is left goes in one more step."""


def prompts() -> dict[int, list[int]]:
    draw = random.Random(1)
    return {n: [draw.randrange(4, 160) for _ in range(n)] for n in PROMPTS}


def logits(directory: Path, dtype: str, kv_cache: KvDtype | None) -> torch.Tensor:
    """Ours of all prompts, in chunks and mixed with decode rows."""
    decoder = load_decoder(directory, dtype, kv_cache=kv_cache)
    assert decoder.spec.kv is not None
    found = run_in_steps(EagerStepper(decoder, pad=2), prompts(), CHUNKS)
    return torch.cat([found[n] for n in PROMPTS])


@pytest.mark.parametrize("ours", ["bfloat16", "float32"])
@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_without_scales_it_is_within_the_error_of_the_same_cache_in_bf16(
    arch: str, ours: str, tmp_path: Path
) -> None:
    directory = make_checkpoint(tmp_path, arch, dtype="bfloat16")
    models = [plain_model(directory, dtype) for dtype in DTYPES]
    reference, peer = (
        torch.cat([kv_logits(model, one, {}) for one in prompts().values()]) for model in models
    )
    assert_quantised(logits(directory, ours, KvDtype.FP8), reference, peer)


NAMES = {
    "k_scale": ("k_scale", "v_scale"),
    "output_scale": ("k_proj.output_scale", "v_proj.output_scale"),
    "below projections": ("k_proj.k_scale", "v_proj.v_scale"),
    "below attn": ("attn.k_scale", "attn.v_scale"),
}
CELLS = (
    ("llama", "tensor-static", "k_scale", torch.float32, (1,)),
    ("qwen3", "channel-token", "output_scale", torch.bfloat16, ()),
    ("llama", "fp8-static", "below projections", torch.float32, (1,)),
    ("qwen3", "block", "below attn", torch.float32, (1,)),
)


@pytest.mark.parametrize("ours", ["bfloat16", "float32"])
@pytest.mark.parametrize(("arch", "layout", "names", "dtype", "shape"), CELLS)
def test_scales_of_a_checkpoint_are_used(
    arch: str,
    layout: str,
    names: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    ours: str,
    tmp_path: Path,
) -> None:
    """Nobody asks for the cache: the checkpoint's scheme does, by whatever name its scales have."""
    directory = make_fp8_checkpoint(tmp_path, arch, layout)
    models = [fp8_reference(directory, layout, one) for one in DTYPES]
    scales = {
        layer: (float(torch.tensor(k).to(dtype)), float(torch.tensor(v).to(dtype)))
        for layer, (k, v) in SCALES.items()
    }
    add_scales(directory, scales, NAMES[names], dtype, shape)
    reference, peer = (
        torch.cat([kv_logits(model, one, scales) for one in prompts().values()]) for model in models
    )
    found = logits(directory, ours, None)
    assert_quantised(found, reference, peer)


def test_a_scale_of_another_layer_or_part_is_far_outside_the_bounds(tmp_path: Path) -> None:
    """The bounds can fail: keys and values with each other's scales."""
    directory = make_fp8_checkpoint(tmp_path, "llama", "tensor-static")
    models = [fp8_reference(directory, "tensor-static", one) for one in DTYPES]
    # Small ones, beyond which values are cut off: only then does a scale matter much.
    scales = dict.fromkeys(SCALES, (0.02, 0.0005))
    add_scales(directory, {layer: (v, k) for layer, (k, v) in scales.items()})
    reference, peer = (
        torch.cat([kv_logits(model, one, scales) for one in prompts().values()]) for model in models
    )
    with pytest.raises(AssertionError, match="error"):
        assert_quantised(logits(directory, "bfloat16", None), reference, peer)
