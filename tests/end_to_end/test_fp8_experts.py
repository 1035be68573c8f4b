"""fp8 experts from a build to logits: pieces with goldens, the store, the numbers rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.flow import ask, built, draw_prompts, logits_of_both_boots
from support.fp8_checkpoints import fp8_references, make_fp8_checkpoint
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
    found = logits_of_both_boots(asked, store, PROMPTS, SCHEDULE)
    assert_quantised(found, *fp8_references(directory, layout, PROMPTS.values()))
