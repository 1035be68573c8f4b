"""The numbers rule for decoders that are not built in: traced from the model of transformers.

The short form compiles one family, runs three more as operator lists, which are the same graphs
without a compiler, and one in eager mode; the long form compiles each family in fp32 and bf16, one
of them tied, and runs many more as operator lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.checkpoints import reference_logits
from support.flow import Forcer, answers, ask, booted, built, draw_prompts, force
from support.numbers import assert_fp32_close, assert_low_precision
from support.traced_checkpoints import FAMILIES, OTHERS, make_traced

from vcc.cache.store import Store

PROMPTS = dict(enumerate(draw_prompts((1, 17, 200, 24), 160)))
"""One token, an odd few, many; the sliding window is 24; blocks are of 16."""

STEPS: Sequence[Mapping[int, int]] = (
    {1: 9, 2: 55},
    {2: 62, 0: 1, 1: 1},
    {1: 6, 2: 40, 3: 16},
    {2: 1, 3: 8},
    {2: 42, 1: 1},
)
"""Prefill in chunks beside decode."""

LIMITS = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64}
TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Cell:
    """What is compiled, and how."""

    architecture: str
    dtype: str = "fp32"
    tied: bool = False
    backend: str = "eager"

    def __str__(self) -> str:
        ties = "tied" if self.tied else "untied"
        return f"{self.architecture}-{self.dtype}-{ties}-{self.backend}"


SHORT = (
    Cell("GPT2LMHeadModel", tied=True, backend="inductor"),
    Cell("Starcoder2ForCausalLM", "bf16", tied=True),
    Cell("CohereForCausalLM", tied=True),
    Cell("OlmoeForCausalLM"),
    Cell("Glm4MoeForCausalLM", backend="none"),
)
LONG = tuple(
    Cell(name, dtype, (dtype == "bf16") == (index % 2 == 0), "inductor")
    for index, name in enumerate(FAMILIES)
    for dtype in ("fp32", "bf16")
)
MORE = tuple(Cell(name) for name in OTHERS)
CELLS = (*SHORT, *(pytest.param(cell, marks=pytest.mark.slow) for cell in (*LONG, *MORE)))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_logits_and_tokens_are_those_of_transformers(
    cell: Cell, shelf: Path, tmp_path: Path
) -> None:
    name = TORCH_NAMES[cell.dtype]
    make_traced(tmp_path, cell.architecture, dtype=name, tied=cell.tied)
    way = {"mode": "none"} if cell.backend == "none" else {"backend": cell.backend}
    config = json.dumps(way)
    asked = ask(tmp_path, dtype=cell.dtype, config=config, **LIMITS)
    store = Store.open(shelf)
    built(asked, store)
    runner = booted(asked, store, lengths=[256] * len(PROMPTS)).runner
    found = force(Forcer(runner), PROMPTS, STEPS)
    mine = torch.cat([found[s] for s in PROMPTS])
    reference, peer = (
        torch.cat([reference_logits(tmp_path, p, one).float() for p in PROMPTS.values()])
        for one in ("float32", name)
    )
    if cell.dtype == "bf16":
        assert_low_precision(mine, reference, peer)
        return
    assert_fp32_close(mine, reference)
    for prompt, tokens in zip(
        PROMPTS.values(), answers(runner, [*PROMPTS.values()], 4), strict=True
    ):
        fed = [*prompt, *tokens[:-1]]
        wanted = reference_logits(tmp_path, fed, "float32")[len(prompt) - 1 :].argmax(-1)
        assert tokens == wanted.tolist()
