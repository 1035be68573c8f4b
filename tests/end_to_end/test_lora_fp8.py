"""Adapters over a checkpoint in fp8: they add to what a projection gives, of the rows as they came.

The reference is transformers' model of the dequantised weights, whose projections round their input
to fp8 by hooks and add scale * B @ A @ x of the input before that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.adapters import ATTENTION, GATED, PREFIX, make_adapter
from support.flow import Forcer, ask, booted, built, draw_prompts, force
from support.fp8_checkpoints import fp8_reference, make_fp8_checkpoint
from support.numbers import assert_quantised
from torch import Tensor, nn

from vcc.cache.store import Store
from vcc.engine.runtime.step import ModelRunner

NAMES = ("one", "two", "")
PROMPTS = dict(enumerate(draw_prompts((1, 17, 60, 23, 40, 9), 160)))
MINE = {index: NAMES[index % 3] for index in PROMPTS}
MIXED = ({1: 9, 2: 35}, {2: 24, 0: 1, 1: 7}, {1: 1, 3: 16, 2: 1, 4: 30}, {3: 7, 4: 10, 5: 9})
"""Prefill in chunks beside decode, with rows of both adapters and of none."""

ALONE = tuple({index: len(prompt)} for index, prompt in PROMPTS.items())
LIMITS = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
SEED = 3
"""Of the weights, as in the tests of fp8 without adapters: a percentile is a draw."""

EAGER = {"backend": "EAGER"}
DTYPES = (torch.float32, torch.bfloat16)
MODULES = (*ATTENTION, *GATED)
CELLS = (("llama", "channel-token", EAGER),)
LONG = (
    ("qwen3", "tensor-static", EAGER),
    ("llama", "block", EAGER),
    ("llama", "fp8-block", {}),
)
ALL = (*CELLS, *(pytest.param(one, marks=pytest.mark.slow) for one in LONG))


@dataclass(frozen=True)
class Cell:
    """A booted artifact with two adapters, and what transformers says in both dtypes."""

    runner: ModelRunner
    reference: Mapping[int, Tensor]
    peer: Mapping[int, Tensor]
    plain: Mapping[int, Tensor]

    def check(self, found: Mapping[int, Tensor]) -> None:
        """The rule for activations in fp8, over the prompts of both adapters and of none.

        One in a thousand of a single prompt's logits would be a handful.
        """
        of_all = (found, self.reference, self.peer)
        assert_quantised(*(torch.cat([of[index] for index in PROMPTS]) for of in of_all))


@contextmanager
def adapted(model: nn.Module, adapter: Path | None) -> Iterator[None]:
    """Inside, every projection adds the adapter's product of its unrounded input."""
    hooks: list[Any] = []
    config = {} if adapter is None else json.loads((adapter / "adapter_config.json").read_text())
    found = {} if adapter is None else load_file(adapter / "adapter_model.safetensors")
    for name, module in model.named_modules():
        a = found.get(f"{PREFIX}{name}.lora_A.weight")
        if a is not None:
            rank = math.sqrt(config["r"]) if config["use_rslora"] else config["r"]
            pair = (a, found[f"{PREFIX}{name}.lora_B.weight"], config["lora_alpha"] / rank)
            hooks += _hooked(module, *pair)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hooked(module: nn.Module, a: Tensor, b: Tensor, scale: float) -> tuple[Any, Any]:
    kept: list[Tensor] = []

    def before(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        kept[:] = [given[0]]  # of the caller, before another hook rounds it

    def after(_: nn.Module, __: Any, result: Tensor) -> Tensor:
        x = kept[0]
        return result + (x @ a.to(x.dtype).T @ b.to(x.dtype).T) * scale

    first = module.register_forward_pre_hook(before, prepend=True)
    return first, module.register_forward_hook(after)


def _logits(directory: Path, layout: str, dtype: torch.dtype, mine: Mapping[int, str]) -> Any:
    model, found = fp8_reference(directory, layout, dtype), {}
    for index, name in mine.items():
        with torch.no_grad(), adapted(model, directory.parent / name if name else None):
            found[index] = model(torch.tensor([list(PROMPTS[index])])).logits[0].float()
    return found


@pytest.fixture(scope="module", params=ALL, ids=lambda cell: "-".join(cell[:2]))
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cell:
    arch, layout, config = request.param
    folder = tmp_path_factory.mktemp(layout)
    base = make_fp8_checkpoint(folder / "base", arch, layout, seed=SEED)
    fp8_reference(base, layout, torch.float32)  # which writes the dequantised weights
    make_adapter(folder / "one", base / "dequantised", modules=MODULES, dtype="bfloat16")
    fields = {"rank": 4, "alpha": 6.0, "layers": [1], "use_rslora": True, "seed": 1}
    make_adapter(
        folder / "two", base / "dequantised", modules=MODULES[:-1], dtype="bfloat16", **fields
    )
    reference, peer = (_logits(base, layout, dtype, MINE) for dtype in DTYPES)
    asked = ask(base, dtype="bf16", config=json.dumps(config), **LIMITS, **LORA)
    store = Store.open(folder / "store")
    built(asked, store)
    runner = booted(asked, store, lengths=[256] * len(PROMPTS)).runner
    for one in NAMES[:2]:
        runner.adapters.load(one, folder / one)
    nobody = dict.fromkeys(PROMPTS, "")
    return Cell(runner, reference, peer, _logits(base, layout, torch.float32, nobody))


def _slots(cell: Cell) -> dict[int, int]:
    known = cell.runner.adapters.slots_for(NAMES)
    return {index: known[name] for index, name in MINE.items()}


@pytest.mark.parametrize("schedule", [MIXED, ALONE], ids=["mixed", "alone"])
def test_logits_are_those_of_fp8_projections_plus_adapters(cell: Cell, schedule: Any) -> None:
    cell.check(force(Forcer(cell.runner, slots=_slots(cell)), PROMPTS, schedule))


def test_the_adapters_matter(cell: Cell) -> None:
    """Else the rule would hold without them too."""
    for index, name in MINE.items():
        apart = (cell.reference[index] - cell.plain[index]).square().mean().sqrt()
        noise = (cell.peer[index] - cell.reference[index]).square().mean().sqrt()
        assert (apart > 3 * noise) == bool(name)


def test_rows_without_an_adapter_have_the_bits_of_a_model_without_any(cell: Cell) -> None:
    slots = _slots(cell)
    mixed = force(Forcer(cell.runner, slots=slots), PROMPTS, MIXED)
    plain = force(Forcer(cell.runner), PROMPTS, MIXED)
    for index, name in MINE.items():
        assert torch.equal(mixed[index], plain[index]) == (not name)
