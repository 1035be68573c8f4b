"""fp8 checkpoints in each layout against transformers' model with the same quantisation.

The reference is fp32 with dequantised weights and activations quantised and dequantised; its peer
is the same in bf16 (docs/decisions, bounds of fp8).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.eager_step import EagerStepper, load_decoder, run_in_steps
from support.fp8_checkpoints import LAYOUTS, fp8_logits, make_fp8_checkpoint
from support.numbers import assert_quantised

from vcc.engine.models.quant.spec import STATIC_ROWS

PROMPTS = (1, 17, 200)


def prompts() -> dict[int, list[int]]:
    draw = random.Random(1)
    return {n: [draw.randrange(4, 160) for _ in range(n)] for n in PROMPTS}


def logits(directory: Path, dtype: str) -> dict[int, torch.Tensor]:
    """Ours for all prompts in one batch, the longest in two steps."""
    stepper = EagerStepper(load_decoder(directory, dtype), pad=2)
    return run_in_steps(stepper, prompts(), [{200: 130}])


CELLS = [(arch, layout) for layout in LAYOUTS for arch in ("llama", "qwen3")]


@pytest.mark.parametrize("ours", ["bfloat16", "float32"])
@pytest.mark.parametrize(("arch", "layout"), CELLS)
def test_the_error_is_within_that_of_the_same_quantisation_in_bf16(
    arch: str, layout: str, ours: str, tmp_path: Path
) -> None:
    """In fp32 too, where a sum in another order may round a value to the next one of fp8."""
    directory = make_fp8_checkpoint(tmp_path, arch, layout)
    found = logits(directory, ours)
    reference, peer = (
        torch.cat([fp8_logits(directory, layout, p, dtype) for p in prompts().values()])
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert_quantised(torch.cat([found[n] for n in PROMPTS]), reference, peer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["tensor-static", "channel-token", "block"])
def test_every_part_keeps_the_scale_that_is_stored(
    layout: str, tmp_path: Path, dtype: torch.dtype
) -> None:
    directory = make_fp8_checkpoint(tmp_path, "qwen3", layout, scale_dtype=dtype)
    stored = load_file(directory / "model.safetensors")
    attention = load_decoder(directory, "bfloat16").layers[1].attn
    home = "model.layers.1.self_attn"
    parts = [stored[f"{home}.{name}_proj.weight_scale"].float() for name in "qkv"]
    flat = parts if layout == "block" else [part.flatten() for part in parts]
    if layout == "tensor-static":  # of each part one, which stands once a row
        flat = [part.expand(rows) for part, rows in zip(flat, attention.qkv.parts, strict=True)]
    assert torch.equal(attention.qkv.weight_scale, torch.cat(flat))
    weights = [stored[f"{home}.{name}_proj.weight"].view(torch.uint8) for name in "qkv"]
    assert torch.equal(attention.qkv.weight.view(torch.uint8), torch.cat(weights))
    if layout == "tensor-static":
        given = stored[f"{home}.q_proj.input_scale"].float()
        assert torch.equal(attention.qkv.input_scale, given.expand(STATIC_ROWS))


@pytest.mark.parametrize("arch", ["gemma2", "phi3", "qwen2_moe"])
def test_other_families_keep_to_the_rule(arch: str, tmp_path: Path) -> None:
    """Norms around blocks, fused tensors in the checkpoint, experts left in bf16; biases."""
    layout = "tensor-static"
    directory = make_fp8_checkpoint(tmp_path, arch, layout, tie_word_embeddings=arch == "gemma2")
    ids = prompts()[200]
    found = run_in_steps(EagerStepper(load_decoder(directory, "bfloat16")), {0: ids}, [])[0]
    reference, peer = (
        fp8_logits(directory, layout, ids, dtype) for dtype in (torch.float32, torch.bfloat16)
    )
    assert_quantised(found, reference, peer)
