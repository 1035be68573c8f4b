"""fp8 experts from a build to logits: pieces with goldens, the store, the numbers rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.flow import ask, built, draw_prompts, forced_logits
from support.fp8_checkpoints import fp8_logits, make_fp8_checkpoint
from support.numbers import assert_quantised

from vcc.cache.store import Store

PROMPTS = dict(enumerate(draw_prompts((1, 17, 60), 160)))
SCHEDULE = ({0: 1, 1: 9, 2: 30}, {1: 8, 2: 29}, {2: 1})
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
CELLS = (
    ("qwen3_moe", "block", "EAGER"),
    pytest.param("qwen2_moe", "channel-token", "INDUCTOR", marks=pytest.mark.slow),
    pytest.param("mixtral", "fp8-static", "INDUCTOR", marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("arch", "layout", "backend"), CELLS)
def test_logits_keep_to_the_rule_and_are_the_same_from_the_store(
    arch: str, layout: str, backend: str, tmp_path: Path
) -> None:
    directory = make_fp8_checkpoint(tmp_path / "model", arch, layout, experts=True)
    config = json.dumps({"backend": backend, "custom_ops": ["all"]})
    asked = ask(directory, dtype="bf16", config=config, **LIMITS)
    store = Store.open(tmp_path / "store")
    info = built(asked, store).loaded.manifest.info
    told = [row["op"] for row in info["ops"] if row["reason"].startswith("fp8 (")]
    assert told == ["scaled_linear", "scaled_experts"]
    first = forced_logits(asked, store, PROMPTS, SCHEDULE)
    assert built(asked, store).reused
    assert torch.equal(forced_logits(asked, store, PROMPTS, SCHEDULE), first)
    reference, peer = (
        torch.cat([fp8_logits(directory, layout, p, dtype) for p in PROMPTS.values()])
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert_quantised(first, reference, peer)
