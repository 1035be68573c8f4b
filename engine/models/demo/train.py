"""Train the demo model and write it as a Hugging Face style directory.

    python -m vcc.engine.models.demo.train --text Rdata.rdb --out DIR --device cuda

The seed fixes weights, windows and dropout; what is left to differ is the rounding of a device's
kernels. `evaluate.py` measures the result.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from vcc.engine.models.demo.directory import CONFIG, CONTEXT, END, VOCAB, write
from vcc.engine.models.demo.text import INSTALLED, read_split

log = logging.getLogger("vcc.demo")

CHECKS = 24  # validations in a run
EXCERPT = 3  # which held-out chapter is kept beside the model, for tests


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides the result; each field is an option of the command."""

    steps: int = field(default=1400, metadata={"help": "optimiser steps"})
    batch: int = field(default=32, metadata={"help": "windows of 512 tokens in a step"})
    rate: float = field(default=2e-3, metadata={"help": "peak learning rate"})
    decay: float = field(default=0.1, metadata={"help": "weight decay"})
    dropout: float = field(default=0.1, metadata={"help": "of embeddings and residual branches"})
    seed: int = field(default=1, metadata={"help": "of weights, windows and dropout"})


@dataclass(frozen=True, slots=True)
class Trained:
    """The best weights by validation loss, and how they came about."""

    weights: dict[str, torch.Tensor]
    validation_loss: float  # nats a token
    step: int
    seconds: float  # of training until then


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """A byte-level BPE tokenizer of `VOCAB` tokens; token 0 ends a chapter."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def stream(tokenizer: Tokenizer, texts: Sequence[str], device: str) -> torch.Tensor:
    """All chapters as one row of token ids, each led in by the end token: int64 [n]."""
    ids = [token for text in texts for token in (0, *tokenizer.encode(text).ids)]
    return torch.tensor(ids, device=device)


def build_model(dropout: float) -> LlamaForCausalLM:
    """A fresh model that also drops embeddings and residual branches while training."""
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))

    def drop(module: torch.nn.Module, _: Any, output: torch.Tensor) -> torch.Tensor:
        return functional.dropout(output, dropout, module.training)

    for name, module in model.named_modules():
        if name.endswith(("embed_tokens", "o_proj", "down_proj")):
            module.register_forward_hook(drop)
    return model


def windows(ids: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets [len(starts), CONTEXT]."""
    rows = ids[starts[:, None] + torch.arange(CONTEXT + 1, device=ids.device)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean nats a token, computed under bfloat16 autocast."""
    with torch.autocast(inputs.device.type, torch.bfloat16):
        logits = model(inputs).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def validate(model: Any, ids: torch.Tensor) -> float:
    """Mean loss over consecutive windows."""
    model.eval()
    starts = torch.arange(0, len(ids) - CONTEXT - 1, CONTEXT, device=ids.device)
    losses = [float(loss_of(model, *windows(ids, part))) * len(part) for part in starts.split(32)]
    model.train()
    return sum(losses) / len(starts)


def train(recipe: Recipe, ids: torch.Tensor, validation: torch.Tensor) -> Trained:
    """Train on random windows of `ids`; keep the weights with the lowest validation loss."""
    torch.manual_seed(recipe.seed)
    model: Any = build_model(recipe.dropout)
    model.to(ids.device).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.rate, recipe.steps, pct_start=0.05, cycle_momentum=False
    )
    best, began = Trained({}, float("inf"), 0, 0.0), time.monotonic()
    every = max(1, recipe.steps // CHECKS)
    for step in range(1, recipe.steps + 1):
        starts = torch.randint(len(ids) - CONTEXT, (recipe.batch,), device=ids.device)
        optimiser.zero_grad()
        loss = loss_of(model, *windows(ids, starts))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % every == 0 and (now := validate(model, validation)) < best.validation_loss:
            weights = {name: value.bfloat16().cpu() for name, value in model.state_dict().items()}
            best = Trained(weights, now, step, time.monotonic() - began)
        if step % every == 0:
            log.info("step %d train %.4f validation %.4f", step, float(loss.detach()), now)
    return best


def main() -> None:
    """Train with the options given and write the directory."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=INSTALLED)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for item in fields(Recipe):
        kind = type(item.default)
        parser.add_argument(f"--{item.name}", type=kind, default=item.default, **item.metadata)
    given = vars(parser.parse_args())
    recipe = Recipe(**{item.name: given[item.name] for item in fields(Recipe)})
    split = read_split(given["text"])
    tokenizer = train_tokenizer(split.train)
    rows = [stream(tokenizer, part, given["device"]) for part in (split.train, split.validation)]
    trained = train(recipe, *rows)
    report = {
        **asdict(recipe),
        "best_step": trained.step,
        "validation_loss": round(trained.validation_loss, 4),
        "seconds": round(trained.seconds, 1),
    }
    write(given["out"], trained.weights, tokenizer, report, split.held_out[EXCERPT])


if __name__ == "__main__":
    main()
