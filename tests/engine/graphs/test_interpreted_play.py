"""Steps of fp8 models by Triton's interpreter, memory poisoned: chunks, several blocks, decode."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from support.fp8_checkpoints import fp8_logits, fp8_reference, make_fp8_checkpoint
from support.interpreted_play import played
from support.kv_fp8 import SCALES, add_scales, kv_logits
from support.numbers import assert_quantised
from torch import Tensor

SCHEDULE = ({0: 40, 1: 5}, {0: 30, 2: 1}, {1: 4, 0: 20}, {0: 1})
"""Of prompts of 92, 9 and 1 tokens: chunks beside others, then decode over seven blocks."""

TYPES = (torch.float32, torch.bfloat16)


def prompts() -> list[list[int]]:
    torch.manual_seed(0)
    return [torch.randint(4, 160, (count,)).tolist() for count in (92, 9, 1)]


def ends() -> list[list[int]]:
    """The positions of each prompt whose logits a step gives."""
    steps = (*SCHEDULE, {0: 1})
    counts = [[one[n] for one in steps if n in one] for n in range(3)]
    return [[end - 1 for end in accumulate(each)] for each in counts]


def held(found: dict[int, Tensor], logits: Callable[[list[int], torch.dtype], Tensor]) -> None:
    """fp32 of the same steps: a value that goes to the next step of fp8 moves what comes after."""
    rows = ends()
    exact, peer = (
        torch.cat([logits(one, dtype)[at].float() for one, at in zip(prompts(), rows, strict=True)])
        for dtype in TYPES
    )
    mine = [found[index] for index in range(len(rows))]
    for index, one in enumerate(mine):
        bad = (~one.isfinite()).any(1).nonzero().flatten().tolist()
        assert not bad, f"prompt {index} is not finite at {[rows[index][at] for at in bad]}"
    assert_quantised(torch.cat(mine), exact, peer)


@pytest.mark.parametrize("layers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_cache_in_fp8_is_read_where_it_was_written(layers: int, tmp_path: Path) -> None:
    """Decode splits keys over all programs of the device; their sums have memory of their own."""
    sizes = {"num_hidden_layers": layers}
    made = make_fp8_checkpoint(tmp_path / "model", "llama", "tensor-static", **sizes)
    models = {one: fp8_reference(made, "tensor-static", one) for one in TYPES}
    scales = {index: SCALES[index] for index in range(layers)}
    add_scales(made, scales)
    (tmp_path / "play").mkdir()
    found = played(tmp_path / "play", made, prompts(), SCHEDULE)
    held(found, lambda ids, dtype: kv_logits(models[dtype], ids, scales))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tensor-static", "block"])
def test_experts_in_fp8_are_those_of_the_checkpoint(layout: str, tmp_path: Path) -> None:
    made = make_fp8_checkpoint(tmp_path / "model", "qwen3_moe", layout, experts=True)
    (tmp_path / "play").mkdir()
    found = played(tmp_path / "play", made, prompts(), SCHEDULE)
    held(found, lambda ids, dtype: fp8_logits(made, layout, ids, dtype))
