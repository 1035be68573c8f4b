"""Adapters on a device: the kernels by the rule, and a booted model with two of them and none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support import lora_cases
from support.adapters import make_adapter, merged
from support.checkpoints import make_checkpoint, reference_logits
from support.flow import Forcer, draw_prompts, force
from support.gpu_jobs import vcc as vcc_process
from support.numbers import assert_low_precision

import vcc
from vcc.engine.runtime.batch import StepBatch
from vcc.engine.runtime.requests import Request

pytestmark = pytest.mark.gpu

NAMES = ("one", "two", "")
PROMPTS = dict(enumerate(draw_prompts((1, 17, 200, 23, 40, 9), 512, seed=11)))
MINE = {index: NAMES[index % 3] for index in PROMPTS}
MIXED = ({1: 9, 2: 55}, {2: 62, 0: 1, 1: 1}, {1: 6, 3: 16, 2: 40, 4: 1}, {3: 6, 2: 1, 4: 20, 5: 9})
LIMITS = {
    "max_model_len": 256,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "max_loras": 2,
    "max_lora_rank": 8,
}
SIZES = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_kernels_on_the_device(dtype: torch.dtype) -> None:
    lora_cases.check(dtype, "cuda")


@dataclass(frozen=True)
class AsTorch:
    """A runner whose logits are tensors."""

    runner: Any

    @property
    def limits(self) -> Any:
        return self.runner.limits

    def step(self, batch: StepBatch) -> torch.Tensor:
        return torch.from_numpy(self.runner.step(batch).copy())


@pytest.fixture(scope="module", params=["full", "full_and_piecewise", "none"])
def model(request: pytest.FixtureRequest, folder: Path) -> vcc.Model:
    words = [item for name, size in LIMITS.items() for item in (_option(name), size)]
    asked = ("--target", "sm_90", "--mode", request.param, *words, "--enable-lora")
    # In a process of its own: this one has used CUDA.
    done = vcc_process("compile", folder / "base", *asked, store=folder / "store")
    assert done.code == 0, done.text[-3000:]
    found = vcc.load(
        str(folder / "base"),
        target="sm_90",
        cache_dir=folder / "store",
        require_warm=True,
        kv_memory="4GiB",
        golden="all",
        compilation={"cuda_graph_mode": request.param},
        enable_lora=True,
        **LIMITS,
    )
    compiles = found.counters["compiles"]
    for name in NAMES[:2]:
        found.load_lora(name, folder / name)
    assert found.counters["compiles"] == compiles
    yield found
    found.runner.close()


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lora")
    make_checkpoint(home / "base", "llama", dtype="bfloat16", **SIZES)
    make_adapter(home / "one", home / "base", seed=1, dtype="bfloat16")
    make_adapter(home / "two", home / "base", seed=2, rank=4, alpha=6.0, layers=[1])
    for name in NAMES[:2]:
        merged(home / f"merged-{name}", home / "base", home / name)
    return home


def test_a_mixed_batch_gives_the_logits_of_the_merged_weights(
    model: vcc.Model, folder: Path
) -> None:
    known = model.runner.adapters.slots_for(NAMES)
    slots = {index: known[name] for index, name in MINE.items()}
    found = force(Forcer(AsTorch(model.runner), slots=slots), PROMPTS, MIXED)
    homes = {name: folder / f"merged-{name}" if name else folder / "base" for name in NAMES}
    logits = {
        dtype: torch.cat(
            [reference_logits(homes[MINE[s]], PROMPTS[s], dtype).float() for s in found]
        )
        for dtype in ("float32", "bfloat16")
    }
    mine = torch.cat([found[s] for s in found])
    assert_low_precision(mine, logits["float32"], logits["bfloat16"])


def test_the_device_decodes_mixed_batches_as_each_alone(model: vcc.Model) -> None:
    asked = [Request(i, tuple(p), max_new_tokens=8, lora=MINE[i]) for i, p in PROMPTS.items()]

    def tokens(requests: list[Request]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {one.index: [] for one in requests}
        for event in model.generate(requests):
            found[event.request].append(event.token)
        return found

    together, alone = tokens(asked), {}
    for one in asked:
        alone |= tokens([one])
    same = sum(a == b for i in together for a, b in zip(together[i], alone[i], strict=True))
    assert same >= 0.9 * sum(map(len, together.values())), "ties of bf16 aside"
    plain = tokens([Request(1, asked[1].token_ids, max_new_tokens=8)])
    assert plain[1] != together[1], "an adapter changes the answer"


def test_after_an_unload_the_model_is_as_before_and_slots_survive_a_sleep(
    model: vcc.Model, folder: Path
) -> None:
    runner = AsTorch(model.runner)
    before = force(Forcer(runner), PROMPTS, MIXED)
    known = model.runner.adapters.slots_for(NAMES)
    slots = {index: known[name] for index, name in MINE.items()}
    with_adapters = force(Forcer(runner, slots=slots), PROMPTS, MIXED)
    model.runner.arena.discard(("weights",))
    model.runner.arena.wake()
    model.runner.reload()
    again = force(Forcer(runner, slots=slots), PROMPTS, MIXED)
    assert all(torch.equal(again[s], with_adapters[s]) for s in PROMPTS)
    for name in NAMES[:2]:
        model.unload_lora(name)
    after = force(Forcer(runner), PROMPTS, MIXED)
    assert all(torch.equal(after[s], before[s]) for s in PROMPTS)
    for name in NAMES[:2]:
        model.load_lora(name, folder / name)
