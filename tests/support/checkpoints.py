"""Small random checkpoints written by transformers, and transformers' own logits for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
}

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

OWN_SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 24},
    "qwen2": {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2},
    "qwen3": {"head_dim": 32},
    "gemma2": {
        "head_dim": 32,
        "sliding_window": 24,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0,
    },
}
"""What makes each family itself: windows shorter than long prompts, explicit head sizes, caps."""


def make_checkpoint(
    directory: Path,
    arch: str,
    *,
    dtype: str = "float32",
    tied: bool = False,
    seed: int = 0,
    shards: int = 1,
    **overrides: Any,
) -> Path:
    """Write a small checkpoint with every parameter redrawn.

    Args:
        directory: made if it is missing.
        arch: key of ARCHITECTURES.
        dtype: of the stored weights.
        tied: whether the head is the embedding.
        seed: of the weights.
        shards: about how many files the weights are split into.
        overrides: config fields.

    Returns:
        The directory, with config, weights, tokenizer and generation settings.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    _quiet()
    fields = SIZES | OWN_SIZES[arch] | {"tie_word_embeddings": tied} | overrides
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(arch, **fields))
    _redraw(model, seed, zero_centred=arch == "gemma2")
    model.to(getattr(torch, dtype))
    size = sum(p.numel() * p.element_size() for p in set(model.parameters()))
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model.save_pretrained(directory, max_shard_size=size // shards + 1 if shards > 1 else "5GB")
    _write_tokenizer(directory, model.config.vocab_size)
    return directory


def reference_logits(directory: Path, token_ids: Sequence[int], dtype: str) -> Tensor:
    """transformers' logits [tokens, vocab] with eager attention and weights cast to `dtype`."""
    model = _reference(str(directory), dtype)
    with torch.no_grad():
        return model(torch.tensor([list(token_ids)])).logits[0]


@lru_cache(maxsize=4)
def _reference(directory: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    _quiet()
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=getattr(torch, dtype), attn_implementation="eager"
    ).eval()


def _quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _redraw(model: torch.nn.Module, seed: int, *, zero_centred: bool) -> None:
    """Norm weights 1 +- 0.3 (as the architecture counts them), biases +- 0.1, matrices normal."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = torch.rand(parameter.shape, generator=generator) * 2 - 1
            if "norm" in name:
                parameter.copy_(spread * 0.3 + (0.0 if zero_centred else 1.0))
            elif name.endswith("bias"):
                parameter.copy_(spread * 0.1)
            else:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * 1.5 / parameter.shape[-1] ** 0.5)


def _write_tokenizer(directory: Path, vocab: int) -> None:
    """Words w4, w5, ... after four special tokens: enough to go from text to ids and back."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(4, vocab))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
