"""The numbers rule for compiled artifacts: every architecture, fp32 and bf16, against transformers.

Each cell is a random checkpoint, compiled, stored and booted once. Between them the cells are tied
and untied, whole and in shards, with plain and scaled rope, with and without sliding windows; those
of the short form too, in which every architecture has one dtype and Gemma 2 both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import make_checkpoint, reference_logits
from support.flow import Forcer, answers, ask, booted, built, draw_prompts, force
from support.numbers import GAP_SHARE, assert_fp32_close, assert_low_precision
from torch import Tensor

from vcc.cache.store import Store
from vcc.engine.monitor import Counters
from vcc.engine.runtime.step import ModelRunner

PROMPTS = dict(enumerate(draw_prompts((1, 17, 200, 23, 24, 25), 160)))
"""One token, an odd few, many; the sliding window (24) with its neighbours; blocks are of 16."""

TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
"""A step that is smaller than the longest prompt, so that its prefill is cut."""

Schedule = Sequence[Mapping[int, int]]
ALONE: Schedule = (
    {0: 1},
    {1: 17},
    *({2: 64}, {2: 64}, {2: 61}),
    *({3: 23}, {4: 24}, {5: 25}),
)
"""Each prompt by itself: whole, or cut in the middle of a block, and the last of 2 by decode."""
MIXED: Schedule = (
    {1: 9, 2: 55},
    {2: 62, 0: 1, 1: 1},
    {1: 6, 3: 16, 2: 40, 4: 1},
    {3: 6, 2: 1, 4: 20, 5: 24},
    {3: 1, 2: 38, 4: 3},
)
"""Prefill in chunks beside decode; decode of what is left, in ever smaller batches."""
SCHEDULES = {"alone": ALONE, "mixed": MIXED}

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0} | {
    "original_max_position_embeddings": 64
}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}


@dataclass(frozen=True)
class Shape:
    """What a cell's checkpoint is like."""

    arch: str
    dtype: str
    tied: bool = False
    shards: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.arch}-{self.dtype}"


SHORT = (
    Shape("llama", "fp32", fields={"rope_parameters": LLAMA3}),
    Shape("mistral", "bf16", fields={"rope_parameters": LINEAR}),
    Shape("qwen2", "bf16", tied=True, shards=3),
    Shape("qwen3", "fp32", tied=True, fields={"rope_parameters": YARN}),
    Shape("gemma2", "bf16", tied=True),
    Shape("qwen3_moe", "fp32", tied=True, shards=3),
)
LONG = (
    Shape("llama", "bf16", tied=True),
    Shape("mistral", "fp32", tied=True, shards=3),
    Shape("qwen2", "fp32", fields={"rope_parameters": YARN}),
    Shape("qwen3", "bf16", fields={"rope_parameters": YARN}),
    Shape("gemma2", "fp32"),
    Shape("gemma3_text", "fp32", tied=True, shards=3),
    Shape("gemma3_text", "bf16"),
    Shape("phi3", "fp32"),
    Shape("phi3", "bf16", tied=True),
    Shape("smollm3", "fp32", tied=True),
    Shape("smollm3", "bf16"),
    Shape("mixtral", "fp32", tied=True, shards=3),
    Shape("mixtral", "bf16"),
    Shape("qwen2_moe", "fp32"),
    Shape("qwen2_moe", "bf16", tied=True),
    Shape("qwen3_moe", "bf16", fields={"norm_topk_prob": False}),
)
"""Each costs 40 s of a core to compile."""
CELLS = (*SHORT, *(pytest.param(shape, marks=pytest.mark.slow) for shape in LONG))


def _name(shape: object) -> str:
    return str(shape)


@dataclass(frozen=True)
class Cell:
    """A booted artifact and what transformers says about its checkpoint."""

    shape: Shape
    runner: ModelRunner
    directory: Path
    counters: Counters
    reference: Mapping[int, Tensor]
    peer: Mapping[int, Tensor]

    def check(self, found: Mapping[int, Tensor], rows: Mapping[int, slice | list[int]]) -> None:
        """Apply the rule of the cell's dtype to all rows of all sequences at once."""
        mine = torch.cat([found[s] for s in rows])
        reference = torch.cat([self.reference[s][wanted] for s, wanted in rows.items()])
        if self.shape.dtype == "fp32":
            assert_fp32_close(mine, reference)
        else:
            peer = torch.cat([self.peer[s][wanted] for s, wanted in rows.items()])
            assert_low_precision(mine, reference, peer)


@pytest.fixture(scope="module", params=CELLS, ids=_name)
def cell(
    request: pytest.FixtureRequest, shelf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Cell:
    shape: Shape = request.param
    directory, counters = tmp_path_factory.mktemp(str(shape)), Counters()
    name = TORCH_NAMES[shape.dtype]
    make_checkpoint(
        directory,
        shape.arch,
        dtype=name,
        tied=shape.tied,
        shards=shape.shards,
        **shape.fields,
    )
    logits = {
        d: {s: reference_logits(directory, p, d).float() for s, p in PROMPTS.items()}
        for d in {"float32", name}
    }
    runner = _booted(directory, shape.dtype, shelf, counters)
    return Cell(shape, runner, directory, counters, logits["float32"], logits[name])


def _booted(directory: Path, dtype: str, shelf: Path, counters: Counters) -> ModelRunner:
    asked = ask(directory, dtype=dtype, **LIMITS)
    store = Store.open(shelf)
    built(asked, store, counters)
    return booted(asked, store, lengths=[256] * len(PROMPTS)).runner


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_logits_of_every_token(cell: Cell, schedule: str) -> None:
    found = force(Forcer(cell.runner), PROMPTS, SCHEDULES[schedule])
    cell.check(found, {s: slice(None) for s in PROMPTS})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_logits_of_real_steps(cell: Cell, schedule: str) -> None:
    """As served: one row of logits a sequence; B = 1 and T = 1 among them, decode from graphs."""
    forcer = Forcer(cell.runner, every_row=False)
    found = force(forcer, PROMPTS, SCHEDULES[schedule])
    cell.check(found, _last_rows(SCHEDULES[schedule]))


def _last_rows(schedule: Schedule) -> dict[int, list[int]]:
    """The positions whose logits the steps of a schedule give, those of the decode included."""
    rows: dict[int, list[int]] = {sequence: [] for sequence in PROMPTS}
    for sequence, prompt in PROMPTS.items():
        fed = 0
        for step in schedule:
            if sequence in step:
                fed += step[sequence]
                rows[sequence].append(fed - 1)
        rows[sequence] += range(fed, len(prompt))
    return rows


def test_generated_tokens_are_those_of_transformers(cell: Cell) -> None:
    """All prompts in one batch; in bf16, wherever the reference's lead exceeds 4 x the error.

    Logits of random weights may have no such lead in a whole answer; in all answers they have some.
    """
    found, leads = answers(cell.runner, [*PROMPTS.values()], 6), 0
    for prompt, tokens in zip(PROMPTS.values(), found, strict=True):
        fed = [*prompt, *tokens[:-1]]
        reference, peer = (
            reference_logits(cell.directory, fed, name).float()[len(prompt) - 1 :]
            for name in ("float32", TORCH_NAMES[cell.shape.dtype])
        )
        error = float((peer - reference).square().mean().sqrt())
        best = reference.topk(2, dim=-1).values
        clear = best[:, 0] - best[:, 1] > GAP_SHARE * error
        wanted = reference.argmax(-1)
        assert torch.equal(torch.tensor(tokens)[clear], wanted[clear])
        leads += int(clear.sum())
    assert leads >= 2 * len(PROMPTS)


def test_nan_and_infinity_in_weights_spread_as_in_transformers(shelf: Path, tmp_path: Path) -> None:
    """Row 112. The code is that of a cell: it is the same for every checkpoint of its shapes."""
    shape = SHORT[0]
    make_checkpoint(tmp_path, shape.arch, **shape.fields)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.embed_tokens.weight"][11] = float("nan")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = float("inf")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    runner = _booted(tmp_path, shape.dtype, shelf, Counters())
    prompts = {0: [5, 6, 7, 8], 1: [5, 6, 11, 7, 8]}
    found = force(Forcer(runner), prompts, [{0: 4, 1: 5}])
    for sequence, prompt in prompts.items():
        wanted = reference_logits(tmp_path, prompt, "float32")
        assert torch.equal(found[sequence].isnan(), wanted.isnan())
        assert bool(wanted.isnan().any())
