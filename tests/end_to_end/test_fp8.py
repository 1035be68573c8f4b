"""fp8 checkpoints from a build to logits: compiled pieces, fusions, the store, the numbers rule.

Pieces run by the eager back end, which compiles nothing; the long form has one by Inductor.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.flow import ask, booted, built, draw_prompts, logits_of_both_boots
from support.fp8_checkpoints import LAYOUTS, fp8_references, make_fp8_checkpoint
from support.numbers import assert_quantised

from vcc.cache.store import Store
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.requests import Request

PROMPTS = dict(enumerate(draw_prompts((1, 17, 60), 160)))
SCHEDULE = ({0: 1, 1: 9, 2: 30}, {1: 8, 2: 29}, {2: 1})
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
SHORT = (("tensor-static", "EAGER", "fused"), ("block", "EAGER", "plain"))
CELLS = [
    pytest.param(layout, backend, form, marks=() if (layout, backend, form) in SHORT else slow)
    for slow in (pytest.mark.slow,)
    for layout in LAYOUTS
    for backend, form in (("EAGER", "fused"), ("EAGER", "plain"), ("INDUCTOR", "fused"))
]
FIRES = {"fuse_norm_quant", "fuse_act_quant"}


@pytest.mark.parametrize(("layout", "backend", "form"), CELLS)
def test_logits_keep_to_the_rule_and_are_the_same_from_the_store(
    layout: str, backend: str, form: str, tmp_path: Path
) -> None:
    directory = make_fp8_checkpoint(tmp_path / "model", "llama", layout)
    ops = {"fused": "all", "plain": "none"}[form]
    config = json.dumps({"backend": backend, "custom_ops": [ops]})
    asked = ask(directory, dtype="bf16", config=config, **LIMITS)
    store = Store.open(tmp_path / "store")
    info = built(asked, store).loaded.manifest
    assert json.loads(dict(info.request)["model.quantisation"]) in ("compressed-tensors", "fp8")
    told = next(row for row in info.info["ops"] if row["op"] == "scaled_linear")
    assert told["reason"].startswith("fp8 (")
    fired = {one["name"] for one in info.info["passes"] if one["matches"]}
    assert form == "plain" or fired >= FIRES
    found = logits_of_both_boots(asked, store, PROMPTS, SCHEDULE)
    assert_quantised(found, *fp8_references(directory, layout, PROMPTS.values()))


def test_nan_in_one_weight_is_told_with_every_token(tmp_path: Path) -> None:
    """It goes through as in plain torch; e4m3 has no infinity, and NaN is 0x7f."""
    directory = make_fp8_checkpoint(tmp_path / "model", "llama", "tensor-static")
    asked = ask(directory, dtype="bf16", config=json.dumps({"backend": "EAGER"}), **LIMITS)
    store = Store.open(tmp_path / "store")
    built(asked, store)
    assert all(told_of(asked, store))
    file = directory / "model.safetensors"
    state = load_file(file)
    state["model.layers.0.mlp.up_proj.weight"].view(torch.uint8)[3, 5] = 0x7F
    save_file(state, file, {"format": "pt"})
    assert not any(told_of(asked, store))


def told_of(asked: Any, store: Store) -> list[bool]:
    """Whether each token of an answer came from finite logits."""
    runner = booted(asked, store, lengths=[64]).runner
    requests = [Request(0, tuple(PROMPTS[1]), max_new_tokens=3)]
    found = [event.finite for event in generate(runner, requests)]
    assert len(found) == 3
    return found
