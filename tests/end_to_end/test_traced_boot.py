"""Artifacts of models of transformers: what a run needs, and which checkpoints they serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.flow import answers, ask, booted, built, draw_prompts
from support.traced_checkpoints import make_traced

from vcc.cache.errors import ModelError
from vcc.cache.store import Store
from vcc.engine.monitor import Counters

EAGER = json.dumps({"backend": "eager"})
LIMITS = {"max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 32}
WORDS = ("--compilation-config", EAGER, "--max-model-len", 64, "--max-num-seqs", 2)
WORDS += ("--max-num-batched-tokens", 32)

WITHOUT = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "transformers":
            raise ImportError("transformers is refused in this process")
sys.meta_path.insert(0, Refused())
from vcc.cli.main import main
main()
"""
"""A process in which transformers cannot be imported."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_traced(tmp_path_factory.mktemp("gpt2"), "GPT2LMHeadModel", tied=True)


def request(directory: Path, **options: Any) -> Any:
    return ask(directory, config=EAGER, **LIMITS, **options)


def test_a_warm_run_needs_no_transformers(
    spawn: Callable[..., Any], checkpoint: Path, tmp_path: Path
) -> None:
    built(request(checkpoint), Store.open(tmp_path))
    words = ("run", checkpoint, *WORDS, "--require-warm", "--json", "--prompt", "w5 w9 w12")
    done = spawn(*words, "--max-new-tokens", 4, store=tmp_path, code=WITHOUT)
    assert done.code == 0, done.err
    assert done.json["counters"]["compiles"] == 0
    assert done.json["counters"]["hits"] == 1


def test_a_build_without_weights_serves_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    """CI has the config alone; its artifact is found by whoever has the weights."""
    config = tmp_path / "model"
    config.mkdir()
    (config / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    store, counters = Store.open(tmp_path / "store"), Counters()
    made = built(request(config, weights="none"), store, counters)
    prompts = draw_prompts((3, 9), 160)
    found = answers(booted(request(checkpoint), store).runner, prompts, 4)
    fresh = Store.open(tmp_path / "fresh")
    built(request(checkpoint), fresh)
    assert found == answers(booted(request(checkpoint), fresh).runner, prompts, 4)
    again = built(request(checkpoint), store, counters)
    assert (again.reused, counters.as_dict()["traces"]) == (True, 1)
    assert made.entry is not None


def test_a_checkpoint_with_other_names_gets_bindings_of_its_own(
    checkpoint: Path, tmp_path: Path
) -> None:
    """The published GPT-2 has no `transformer.` before its names; no code depends on that."""
    other = tmp_path / "model"
    other.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (other / name).write_bytes((checkpoint / name).read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    plain = {name.removeprefix("transformer."): one for name, one in weights.items()}
    save_file(plain, other / "model.safetensors", metadata={"format": "pt"})
    store, counters = Store.open(tmp_path / "store"), Counters()
    built(request(checkpoint), store, counters)
    second = built(request(other), store, counters)
    assert (second.reused, second.planned, counters.as_dict()["traces"]) == (True, True, 1)
    prompts = draw_prompts((3, 9), 160)
    mine, theirs = (
        answers(booted(request(d), store).runner, prompts, 4) for d in (other, checkpoint)
    )
    assert mine == theirs


def test_an_untied_head_that_is_stored_is_used(checkpoint: Path, tmp_path: Path) -> None:
    """As transformers does where a checkpoint has both and they differ."""
    other = tmp_path / "model"
    other.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (other / name).write_bytes((checkpoint / name).read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    head = torch.randn(weights["transformer.wte.weight"].shape, generator=torch.manual_seed(3))
    save_file(weights | {"lm_head.weight": head}, other / "model.safetensors", {"format": "pt"})
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(other, dtype=torch.float32).eval()
    store = Store.open(tmp_path / "store")
    built(request(other), store)
    prompt = draw_prompts((9,), 160)[0]
    (found,) = answers(booted(request(other), store).runner, [prompt], 1)
    with torch.no_grad():
        assert found[0] == int(model(torch.tensor([prompt])).logits[0, -1].argmax())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w.pop("transformer.h.1.ln_1.bias"), "h.1.ln_1.bias is missing"),
        (lambda w: w.update(extra=torch.zeros(2)), "extra is not part of the model"),
        (
            lambda w: w.update({"transformer.ln_f.weight": torch.zeros(3)}),
            "ln_f.weight is [3], the config says [64]",
        ),
    ],
)
def test_weights_that_are_not_the_configs_are_refused(
    change: Callable[[dict[str, Any]], Any], why: str, checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "model"
    other.mkdir()
    (other / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    change(weights)
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="and the weights disagree") as caught:
        built(request(other), Store.open(tmp_path / "store"))
    assert why in caught.value.why
