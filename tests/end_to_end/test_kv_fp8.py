"""A KV cache in fp8 from a build to logits: requests, the store, fusions, the numbers rule.

Pieces run by the eager back end, which compiles nothing; the long form has them by Inductor.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import make_checkpoint
from support.flow import Forcer, ask, booted, built, draw_prompts, force, forced_logits
from support.fp8_checkpoints import fp8_reference, make_fp8_checkpoint
from support.kv_fp8 import SCALES, add_scales, kv_logits, plain_model
from support.numbers import assert_quantised
from support.traced_checkpoints import make_traced

from vcc.cache.store import Store
from vcc.engine.request import look_up, settle

PROMPTS = dict(enumerate(draw_prompts((1, 17, 60), 160)))
SCHEDULE = ({0: 1, 1: 9, 2: 30}, {1: 8, 2: 29}, {2: 1})
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
DTYPES = (torch.float32, torch.bfloat16)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {"custom_ops": ["none"]},
    "fused": {"custom_ops": ["all"]},
    "uncut": {"custom_ops": ["all"], "splitting_ops": []},
}
SHORT = (("EAGER", "fused"), ("EAGER", "plain"))
CELLS = [
    pytest.param(backend, form, marks=() if (backend, form) in SHORT else pytest.mark.slow)
    for backend, form in (*SHORT, ("EAGER", "uncut"), ("INDUCTOR", "fused"), ("INDUCTOR", "uncut"))
]


@pytest.mark.parametrize(("backend", "form"), CELLS)
def test_scales_of_a_checkpoint_reach_the_operators(
    backend: str, form: str, tmp_path: Path
) -> None:
    """Fused and apart give the same cache bit for bit, so the same rule holds for both."""
    directory = make_fp8_checkpoint(tmp_path / "model", "llama", "tensor-static")
    models = [fp8_reference(directory, "tensor-static", one) for one in DTYPES]
    add_scales(directory, SCALES)
    config = json.dumps({"backend": backend, **FORMS[form]})
    asked, store = ask(directory, dtype="bf16", config=config, **LIMITS), Store.open(tmp_path / "s")
    info = built(asked, store).loaded.manifest
    assert dict(info.request)["model.kv_cache_dtype"] == "fp8"
    fired = {one["name"] for one in info.info["passes"] if one["matches"]}
    assert ("fuse_rope_kv_write" in fired) == (form != "plain")
    first = forced_logits(asked, store, PROMPTS, SCHEDULE)
    assert built(asked, store).reused
    assert torch.equal(forced_logits(asked, store, PROMPTS, SCHEDULE), first)
    reference, peer = (
        torch.cat([kv_logits(model, one, SCALES) for one in PROMPTS.values()]) for model in models
    )
    assert_quantised(first, reference, peer)


@pytest.mark.parametrize("compile_mode", ["vcc", "none"])
def test_two_caches_are_two_artifacts_and_half_the_memory(
    compile_mode: str, tmp_path: Path
) -> None:
    directory = make_checkpoint(tmp_path / "model", "qwen3", dtype="bfloat16")
    store = Store.open(tmp_path / "store")
    shared = {"dtype": "bf16", "compile": compile_mode, **LIMITS}
    if compile_mode == "vcc":
        shared["config"] = '{"backend": "EAGER"}'
    usual, auto = ask(directory, **shared), ask(directory, kv_cache_dtype="auto", **shared)
    fp8 = ask(directory, kv_cache_dtype="fp8", **shared)
    assert look_up(settle(usual)) == look_up(settle(auto))
    requests = [dict(built(one, store).loaded.manifest.request) for one in (usual, fp8)]
    assert "model.kv_cache_dtype" not in requests[0]
    assert requests[0] | {"model.kv_cache_dtype": "fp8"} == requests[1]
    found = {name: booted(one, store, [256] * 3) for name, one in (("usual", usual), ("fp8", fp8))}
    caches = {name: cache_bytes(one.runner) for name, one in found.items()}
    assert caches["fp8"] * 2 == caches["usual"]
    got = force(Forcer(found["fp8"].runner), PROMPTS, SCHEDULE)
    models = [plain_model(directory, one) for one in DTYPES]
    reference, peer = (
        torch.cat([kv_logits(model, one, {}) for one in PROMPTS.values()]) for model in models
    )
    assert_quantised(torch.cat([got[one] for one in PROMPTS]), reference, peer)


def test_a_decoder_of_transformers_has_it_too(tmp_path: Path) -> None:
    """Its attention goes through the same operators, with scales of 1."""
    directory = make_traced(tmp_path / "model", "GPT2LMHeadModel")
    config = '{"backend": "EAGER"}'
    asked = ask(directory, dtype="fp32", kv_cache_dtype="fp8", config=config, **LIMITS)
    store = Store.open(tmp_path / "store")
    built(asked, store)
    models = [plain_model(directory, one) for one in DTYPES]
    reference, peer = (
        torch.cat([kv_logits(model, one, {}) for one in PROMPTS.values()]) for model in models
    )
    assert_quantised(forced_logits(asked, store, PROMPTS, SCHEDULE), reference, peer)


def cache_bytes(runner: Any) -> int:
    """Bytes of all caches of a runner."""
    (code,) = runner._parts.codes
    names = [one.name for one in code.program.of_role("input") if one.name.startswith("kv_cache")]
    return sum(code.memory.view(name, {}).nbytes for name in names)
