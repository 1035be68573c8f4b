"""Reference tokens and logits for the player: transformers in fp32 and bf16, and vcc's CPU step.

    python tests/gpu/probe/reference.py --out build/gpu-probe/reference.npz

For prompts of 1, 17 and 200 tokens of the demo's held-out text: transformers' greedy continuation
in fp32, and the logits of all positions of prompt and continuation by each of the three (bf16
logits as 16-bit integers). The weights are the demo's, which are stored in bf16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.eager_step import EagerStepper, load_decoder
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from vcc.engine.models.source import DEMO

LENGTHS, NEW = (1, 17, 200), 32
BLOCK_SIZE, TABLE = 16, 32


def main() -> int:
    """Write the reference file and print how far apart the three are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    models = {name: _peer(name) for name in ("float32", "bfloat16")}
    decoder = load_decoder(DEMO, "bfloat16")
    tokens = _tokens()
    found: dict[str, Any] = {}
    for length in LENGTHS:
        start = 2 * length
        prompt = tokens[start : start + length]
        sequence = _greedy(models["float32"], prompt)
        found[f"sequence_{length}"] = np.array(sequence, np.int32)
        found[f"fp32_{length}"] = _logits(models["float32"], sequence).numpy()
        found[f"bf16_{length}"] = _bits(_logits(models["bfloat16"], sequence))
        found[f"cpu_{length}"] = _bits(_stepped(decoder, prompt, sequence))
        found[f"cpu_greedy_{length}"] = np.array(_cpu_greedy(decoder, prompt), np.int32)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **found)
    print(json.dumps({k: list(v.shape) for k, v in found.items()}))
    return 0


def _peer(dtype: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(DEMO, dtype=getattr(torch, dtype)).eval()


def _tokens() -> list[int]:
    text = (DEMO / "excerpt.txt").read_text(encoding="utf-8")
    ids: list[int] = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(text).ids
    return ids


@torch.no_grad()
def _greedy(model: Any, prompt: list[int]) -> list[int]:
    tokens = list(prompt)
    for _ in range(NEW):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens


@torch.no_grad()
def _logits(model: Any, tokens: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def _stepper(decoder: Any) -> EagerStepper:
    return EagerStepper(decoder, block_size=BLOCK_SIZE, blocks=TABLE, table=TABLE)


def _stepped(decoder: Any, prompt: list[int], sequence: list[int]) -> torch.Tensor:
    """vcc's step in bf16: prefill of the prompt, then the continuation token by token."""
    stepper = _stepper(decoder)
    parts = [stepper.step({0: prompt})[0]]
    parts += [stepper.step({0: [token]})[0] for token in sequence[len(prompt) :]]
    return torch.cat(parts)


def _cpu_greedy(decoder: Any, prompt: list[int]) -> list[int]:
    stepper, tokens, work = _stepper(decoder), [], list(prompt)
    for _ in range(NEW):
        tokens.append(int(stepper.step({0: work})[0][-1].argmax()))
        work = [tokens[-1]]
    return [*prompt, *tokens]


def _bits(logits: torch.Tensor) -> Any:
    return logits.contiguous().view(torch.uint16).numpy()


if __name__ == "__main__":
    sys.exit(main())
