"""Decoders that are traced from `transformers`, played on a device without torch.

Each was built for sm_90 from the model of `transformers` (docs/transformers.md) and has no row in
the table of built-in decoders. Logits of prompts that are prefilled whole and cut, and decoded in
batches, are held to `transformers` by the numbers rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.gpu_numbers import SIZES, Prepared, job_of, prepared
from support.numbers import assert_low_precision, assert_routed

pytest.importorskip("transformers", reason="transformers is not installed")
from support.traced_checkpoints import make_traced

pytestmark = pytest.mark.gpu

LENGTHS = {"one": 1, "odd": 17, "many": 200, "long": 700}
ROWS = 120
"""Positions of a prompt that are checked."""

LIMITS = {"max_model_len": 1024, "max_num_batched_tokens": 512}

ALONE: Sequence[Mapping[str, int]] = (
    *({"one": 1}, {"odd": 17}, {"many": 200}),
    *({"long": 512}, {"long": 180}),
)
"""Whole, or cut where the step ends; the last 8 tokens by decode."""
MIXED: Sequence[Mapping[str, int]] = (
    {"odd": 9, "many": 55, "long": 400},
    {"many": 62, "one": 1, "odd": 1, "long": 200},
    {"odd": 6, "many": 75, "long": 96},
)
"""Prefill in chunks beside decode; what is left by decode, in ever smaller batches."""

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    "GPT2LMHeadModel": {"tied": True, "n_inner": 512},
    "Olmo2ForCausalLM": {"tied": True},
    "Cohere2ForCausalLM": {"head_dim": 64, "sliding_window": 130},
    "OlmoeForCausalLM": {"num_experts": 16, "num_experts_per_tok": 4},
}
"""Heads rotated in part; learned positions, weights stored transposed and a tied head; norms over
all heads; windows; experts with a router in plain torch."""

RULES = {"OlmoeForCausalLM": assert_routed}
"""Where it is not that of low precision."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Prepared]:
    """Every family with all parameters redrawn; all compile and compute side by side."""
    runs, found = {"alone": ALONE, "mixed": MIXED}, {}
    for name, own in FAMILIES.items():
        folder = tmp_path_factory.mktemp(name)
        fields = {**SIZES, "max_position_embeddings": 1024, **own}
        model = make_traced(folder / "model", name, dtype="bfloat16", **fields)
        found[name] = (job_of(model, folder, LENGTHS, ROWS, runs, **LIMITS), folder)
    return prepared(found)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_traced_decoder_keeps_the_numbers_rule(
    architecture: str, jobs: Mapping[str, Prepared]
) -> None:
    one = jobs[architecture]
    played, heavy = one.play()
    assert heavy == []
    for run in one.job.runs:
        one.check(played, run, RULES.get(architecture, assert_low_precision))
