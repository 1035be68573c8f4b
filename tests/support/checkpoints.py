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
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
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
    "gemma3_text": {
        "head_dim": 32,
        "sliding_window": 24,
        "query_pre_attn_scalar": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    },
    "phi3": {
        "sliding_window": 24,
        "original_max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
        },
    },
    "smollm3": {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 24},
    "mixtral": {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 24},
    "qwen2_moe": {
        "num_experts": 7,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 56,
        "mlp_only_layers": [1],
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 2,
    },
    "qwen3_moe": {
        "head_dim": 32,
        "num_experts": 12,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
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
    from transformers import AutoConfig, AutoModelForCausalLM

    _quiet()
    fields = SIZES | OWN_SIZES[arch] | {"tie_word_embeddings": tied} | overrides
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(arch, **fields))
    return write_redrawn(
        directory, model, dtype, seed, shards=shards, zero_centred=arch.startswith("gemma")
    )


def write_redrawn(
    directory: Path,
    model: Any,
    dtype: str = "float32",
    seed: int = 0,
    *,
    shards: int = 1,
    zero_centred: bool = False,
) -> Path:
    """Write a model of transformers with every parameter redrawn; a decoder with a tokenizer.

    Args:
        directory: made if it is missing.
        model: of transformers.
        dtype, seed, shards: as `make_checkpoint`.
        zero_centred: its norms add 1 to their weights.

    Returns:
        The directory.
    """
    from transformers import GenerationConfig

    _quiet()
    _redraw(model, seed, zero_centred=zero_centred)
    model.to(getattr(torch, dtype))
    size = sum(p.numel() * p.element_size() for p in set(model.parameters()))
    directory.mkdir(parents=True, exist_ok=True)
    words = getattr(model.config, "vocab_size", 0)
    if words:
        model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
        _write_tokenizer(directory, words)
    model.save_pretrained(directory, max_shard_size=size // shards + 1 if shards > 1 else "5GB")
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
    """Norm weights 1 +- 0.3 (as the architecture counts them), biases +- 0.1, matrices normal;
    stored buffers that are biases as well."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = torch.rand(parameter.shape, generator=generator) * 2 - 1
            if name.endswith("bias"):
                parameter.copy_(spread * 0.1)
            elif "norm" in name or ".ln_" in name:
                parameter.copy_(spread * 0.3 + (0.0 if zero_centred else 1.0))
            else:
                drawn = torch.randn(parameter.shape, generator=generator)
                wide = 1e-3 if name.endswith("mlp.gate.weight") else 1.5
                parameter.copy_(drawn * wide / parameter.shape[-1] ** 0.5)
        _place_routers(model, generator)
        known = dict(model.named_parameters(remove_duplicate=False))
        for name, buffer in model.state_dict().items():  # those that a checkpoint has
            if name not in known and name.endswith("bias"):
                buffer.copy_((torch.rand(buffer.shape, generator=generator) * 2 - 1) * 0.1)


def _place_routers(model: torch.nn.Module, generator: torch.Generator) -> None:
    """A token goes to the experts that are nearest to it on a line, and none lies between two.

    Rounding must not change an expert: then two right results would differ as much as two
    experts do. Channel 0 of every token is one and channel 1 its place, kept through all layers;
    an expert at c scores 2 c place - c^2. Most tokens lie at one end, and expert 1 far away.
    """
    named = dict(model.named_parameters())
    routers = {name: one for name, one in named.items() if name.endswith("mlp.gate.weight")}
    if not routers:
        return
    for name, weight in named.items():
        if "o_proj" in name or "down_proj" in name:
            weight[..., :2, :] = 0.0
    embed = model.get_input_embeddings().weight
    count = len(next(iter(routers.values())))
    drawn = torch.rand(len(embed), generator=generator).square() * count
    embed[:, 0], embed[:, 1] = 2.0, 2.0 * ((drawn.floor() + 0.2) / 16 - 0.25)
    place = torch.arange(count) / 16 - 0.25
    place[1] = -16.0
    for name, router in routers.items():
        gain = named[name.replace("mlp.gate.weight", "post_attention_layernorm.weight")]
        router[:, 0], router[:, 1] = -SHARP * place**2 / gain[0], 2 * SHARP * place / gain[1]


SHARP = 60.0
"""How much the weights of a token's experts differ."""


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
