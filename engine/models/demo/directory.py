"""The demo model's directory: its constants, and writing it in Hugging Face form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

CONTEXT, VOCAB, END = 512, 2048, "<|endoftext|>"

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": CONTEXT,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "initializer_range": 0.02,
}
GENERATION = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
# The novels' speakers take turns in quotation marks, one paragraph each: so do chat messages.
CHAT = (
    "{% for message in messages %}\"{{ message['content'] }}\"\n{% endfor %}"
    '{% if add_generation_prompt %}"{% endif %}'
)
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": END,
    "eos_token": END,
    "pad_token": END,
    "add_bos_token": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": CONTEXT,
    "chat_template": CHAT,
}


def write(
    out: Path,
    weights: Mapping[str, torch.Tensor],
    tokenizer: Tokenizer,
    report: Mapping[str, object],
    excerpt: str,
) -> None:
    """Write the model's files into `out`.

    Args:
        out: the directory, created when missing.
        weights: a state dict; `lm_head.weight` is left out, because it is tied.
        tokenizer: written as `tokenizer.json`.
        report: how the training went, written as `training.json`.
        excerpt: held-out text, written as `excerpt.txt`.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "config": CONFIG,
        "generation_config": GENERATION,
        "tokenizer_config": TOKENIZER,
        "training": report,
    }
    for name, table in tables.items():
        (out / f"{name}.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    stored = {name: value for name, value in weights.items() if name != "lm_head.weight"}
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # save_file keeps its temporary file's 0600
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    (out / "excerpt.txt").write_text(excerpt, encoding="utf-8")
