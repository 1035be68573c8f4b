"""Adapters by the numbers rule: mixed in a batch they equal each alone, and the merged weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.adapters import ATTENTION, GATED, make_adapter, merged
from support.checkpoints import make_checkpoint, reference_logits
from support.flow import Forcer, answers, ask, booted, built, draw_prompts, force
from support.numbers import assert_fp32_close, assert_low_precision
from torch import Tensor

from vcc.cache.errors import UsageError
from vcc.cache.store import Store
from vcc.engine.models.source import open_source
from vcc.engine.monitor import Counters
from vcc.engine.runtime.defaults import Overrides
from vcc.engine.runtime.generate import generate
from vcc.engine.runtime.requests import Request
from vcc.engine.runtime.step import ModelRunner
from vcc.engine.serving import Serving
from vcc.engine.stdio import Line, Stdio

TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
EAGER = '{"backend": "eager", "inductor_config": {}}'
"""Pieces as lists of operators: without a C++ compile, the rest as it is."""

NAMES = ("one", "two", "")
PROMPTS = dict(enumerate(draw_prompts((1, 17, 200, 23, 40, 9), 160, seed=11)))
MINE = {index: NAMES[index % 3] for index in PROMPTS}
"""The adapter of each prompt; the empty name is the model without one."""

MIXED = (
    {1: 9, 2: 55},
    {2: 62, 0: 1, 1: 1},
    {1: 6, 3: 16, 2: 40, 4: 1},
    {3: 6, 2: 1, 4: 20, 5: 9},
)
"""Prefill in chunks beside decode, with rows of both adapters and of none; then decode of all."""


@dataclass(frozen=True)
class Shape:
    """What a cell's checkpoint is like, and whether its pieces are compiled."""

    arch: str
    dtype: str
    compiled: bool = True

    def __str__(self) -> str:
        return f"{self.arch}-{self.dtype}" + ("" if self.compiled else "-eager")


SHORT = (Shape("llama", "fp32"), Shape("qwen3", "bf16", compiled=False))
LONG = (
    Shape("llama", "bf16"),
    Shape("qwen3", "fp32"),
    Shape("qwen3", "bf16"),
    Shape("qwen2", "fp32"),
    Shape("qwen2", "bf16"),
    Shape("phi3", "fp32", compiled=False),
)
CELLS = (*SHORT, *(pytest.param(shape, marks=pytest.mark.slow) for shape in LONG))


@dataclass(frozen=True)
class Cell:
    """A booted artifact with two adapters, and what transformers says of the merged weights."""

    shape: Shape
    runner: ModelRunner
    counters: Counters
    folder: Path
    reference: Mapping[int, Tensor]
    peer: Mapping[int, Tensor]

    def check(self, found: Mapping[int, Tensor]) -> None:
        """The rule of the cell's dtype."""
        mine, wanted = (torch.cat([of[s] for s in found]) for of in (found, self.reference))
        if self.shape.dtype == "fp32":
            assert_fp32_close(mine, wanted)
        else:
            assert_low_precision(mine, wanted, torch.cat([self.peer[s] for s in found]))

    def slots(self) -> dict[int, int]:
        """The slot of each prompt's adapter."""
        known = self.runner.adapters.slots_for(NAMES)
        return {index: known[name] for index, name in MINE.items()}


def _modules(arch: str) -> tuple[str, ...]:
    if arch == "phi3":
        return ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    return (*ATTENTION, *GATED)


def _asked(directory: Path, shape: Shape) -> Any:
    config = {} if shape.compiled else {"config": EAGER}
    return ask(directory, dtype=shape.dtype, **LIMITS, **LORA, **config)


@pytest.fixture(scope="module", params=CELLS, ids=str)
def cell(
    request: pytest.FixtureRequest, shelf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Cell:
    shape: Shape = request.param
    folder, seed = tmp_path_factory.mktemp(str(shape)), torch.initial_seed() % 2**31
    name, base = TORCH_NAMES[shape.dtype], folder / "base"
    make_checkpoint(base, shape.arch, dtype=name, num_hidden_layers=2)
    modules = _modules(shape.arch)
    make_adapter(folder / "one", base, modules=modules, seed=seed, dtype=name)
    # Another rank, scale and choice of modules and layers.
    fields = {"rank": 4, "alpha": 6.0, "layers": [1], "use_rslora": True, "seed": seed + 1}
    make_adapter(folder / "two", base, modules=modules[:-1], **fields)
    for one in NAMES[:2]:
        merged(folder / f"merged-{one}", base, folder / one)
    homes = {one: folder / f"merged-{one}" if one else base for one in NAMES}
    logits = {
        d: {s: reference_logits(homes[MINE[s]], p, d).float() for s, p in PROMPTS.items()}
        for d in {"float32", name}
    }
    asked, counters, store = _asked(base, shape), Counters(), Store.open(shelf)
    built(asked, store, counters)
    runner = booted(asked, store, lengths=[256] * len(PROMPTS)).runner
    with counters.expect(compiles=0):
        for one in NAMES[:2]:
            runner.adapters.load(one, folder / one)
    return Cell(shape, runner, counters, folder, logits["float32"], logits[name])


def test_a_mixed_batch_gives_the_logits_of_the_merged_weights(cell: Cell) -> None:
    cell.check(force(Forcer(cell.runner, slots=cell.slots()), PROMPTS, MIXED))


def test_each_adapter_alone_gives_the_logits_of_the_merged_weights(cell: Cell) -> None:
    schedule = ({0: 1}, {1: 17}, {2: 64}, {2: 64}, {2: 61}, {3: 23}, {4: 40}, {5: 9})
    cell.check(force(Forcer(cell.runner, slots=cell.slots()), PROMPTS, schedule))


def test_answers_in_one_batch_are_those_of_each_alone(cell: Cell) -> None:
    asked = [
        Request(index, tuple(prompt), max_new_tokens=5, lora=MINE[index])
        for index, prompt in PROMPTS.items()
    ]
    together = _answers(cell.runner, asked)
    alone = {one.index: _answers(cell.runner, [one])[one.index] for one in asked}
    if cell.shape.dtype == "fp32":
        assert together == alone
    assert [len(one) for one in together.values()] == [5] * len(asked)


def _answers(runner: ModelRunner, asked: list[Request]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {one.index: [] for one in asked}
    for event in generate(runner, asked):
        found[event.request].append(event.token)
    return found


def test_after_an_unload_the_model_is_as_before_to_the_bit(cell: Cell) -> None:
    runner, prompts = cell.runner, [*PROMPTS.values()]
    before = answers(runner, prompts, 4)
    plain = force(Forcer(runner), PROMPTS, MIXED)
    for name in NAMES[:2]:
        runner.adapters.unload(name)
    assert runner.adapters.names == ()
    assert answers(runner, prompts, 4) == before
    after = force(Forcer(runner, slots=dict.fromkeys(PROMPTS, 0)), PROMPTS, MIXED)
    assert all(torch.equal(after[s], plain[s]) for s in PROMPTS)
    with pytest.raises(UsageError, match="no adapter called 'one'"):
        next(iter(generate(runner, [Request(0, (5, 6), lora="one")])))
    for name in NAMES[:2]:
        runner.adapters.load(name, cell.folder / name)


def test_more_adapters_than_slots_take_turns(cell: Cell) -> None:
    """The third waits until a slot is free of the batch, and takes the least recently used."""
    runner = cell.runner
    for name in ("three", "four"):
        runner.adapters.load(name, cell.folder / "one")
    prompt = tuple(PROMPTS[3])
    asked = [
        Request(index, prompt, max_new_tokens=3, lora=name)
        for index, name in enumerate(("one", "two", "three", "", "four"))
    ]
    found = _answers(runner, asked)
    assert found[0] == found[2] == found[4]
    assert found[1] != found[0] != found[3]
    for name in ("three", "four"):
        runner.adapters.unload(name)


def test_an_adapter_in_use_is_not_unloaded(cell: Cell) -> None:
    events = generate(cell.runner, [Request(0, (5, 6, 7), max_new_tokens=3, lora="one")])
    next(events)
    with pytest.raises(UsageError, match="in use"):
        cell.runner.adapters.unload("one")
    events.close()
    del events
    cell.runner.adapters.unload("one")
    cell.runner.adapters.load("one", cell.folder / "one")


def test_lines_of_a_program_name_their_adapters(cell: Cell) -> None:
    told: list[Mapping[str, Any]] = []
    source = open_source(str(cell.folder / "base"))
    stdio = Stdio(Serving(cell.runner, source), told.append, Overrides(ignore_eos=True))
    prompt, same = PROMPTS[1], {"max_new_tokens": 4}
    asked = [{"prompt": prompt, "id": name or "none", "lora": name, **same} for name in NAMES]
    asked.append({"prompt": prompt, "id": "strange", "lora": "strange"})
    lines = [Line(i + 1, json.dumps(one).encode()) for i, one in enumerate(asked)]
    stdio.run(lines)
    found = {one["id"]: one["token_ids"] for one in told if "token_ids" in one}
    wanted = _answers(
        cell.runner,
        [Request(i, tuple(prompt), max_new_tokens=4, lora=n) for i, n in enumerate(NAMES)],
    )
    assert [found[name or "none"] for name in NAMES] == list(wanted.values())
    (refused,) = [one["error"] for one in told if "error" in one]
    assert refused["what"] == "no adapter called 'strange'"


def test_a_warm_boot_takes_adapters_without_a_compile(
    cell: Cell, shelf: Path, spawn: Any, tmp_path: Path
) -> None:
    prompts = [{"prompt": PROMPTS[1], "lora": name} for name in NAMES]
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps(prompts))
    given = [word for name in NAMES[:2] for word in ("--lora", f"{name}={cell.folder / name}")]
    done = spawn(
        *("run", cell.folder / "base", *given, "--prompts", file, "--max-new-tokens", "4"),
        *("--require-warm", "--json", "--ignore-eos", "--dtype", cell.shape.dtype),
        store=shelf,
    )
    assert done.code == 0, done.err
    counters = done.json["counters"]
    assert (counters["compiles"], counters["traces"], counters["misses"]) == (0, 0, 0)
    assert counters["adapters"] == counters["adapter_slots"] == 2
    found = [one["token_ids"] for one in done.json["prompts"]]
    asked = [
        Request(index, tuple(PROMPTS[1]), max_new_tokens=4, lora=name)
        for index, name in enumerate(NAMES)
    ]
    assert found == list(_answers(cell.runner, asked).values())
