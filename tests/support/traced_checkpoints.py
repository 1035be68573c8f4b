"""Small random checkpoints of decoders that are not built in, by what makes each family itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.checkpoints import SIZES, write_redrawn

FAMILIES: dict[str, dict[str, Any]] = {
    # learned positions, one matrix for query, key and value, stored transposed
    "GPT2LMHeadModel": {},
    # learned positions with an offset, biases everywhere
    "OPTForCausalLM": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    # attention and feed-forward side by side, heads rotated in part, query, key, value by head
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    # the same with biases in all projections and in the head
    "PhiForCausalLM": {"partial_rotary_factor": 0.5, "num_key_value_heads": 2},
    # layer norms with biases, grouped heads, a window
    "Starcoder2ForCausalLM": {"sliding_window": 24, "num_key_value_heads": 2},
    # norms after each block, norms of queries and keys over all heads
    "Olmo2ForCausalLM": {"num_key_value_heads": 2},
    # attention and feed-forward side by side, logits scaled, a rope by neighbours
    "CohereForCausalLM": {"num_key_value_heads": 2, "logit_scale": 0.25, "use_qk_norm": True},
    # windows in three of four layers, no rope in the fourth
    "Cohere2ForCausalLM": {"num_key_value_heads": 2, "sliding_window": 24, "head_dim": 16},
    # one key head for all, a matrix of query, key and value
    "GPTBigCodeForCausalLM": {},
    # experts by a router, norms of queries and keys
    "OlmoeForCausalLM": {"num_experts": 6, "num_experts_per_tok": 2, "num_key_value_heads": 2},
    # multipliers on embeddings, scores, branches and logits
    "GraniteForCausalLM": {
        "num_key_value_heads": 2,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
        "logits_scaling": 4.0,
    },
}
"""Config fields beside the sizes, by architecture."""


def make_traced(
    directory: Path, architecture: str, *, dtype: str = "float32", tied: bool = False, **fields: Any
) -> Path:
    """Write a checkpoint of one of the families; arguments as of `make_checkpoint`."""
    import transformers

    kind = getattr(transformers, architecture)
    known = kind.config_class()
    sizes = {name: value for name, value in SIZES.items() if hasattr(known, name)}
    sizes["num_key_value_heads"] = sizes.get("num_attention_heads", 4)
    own = {**sizes, **FAMILIES[architecture], **fields, "tie_word_embeddings": tied}
    own = {name: value for name, value in own.items() if hasattr(known, name)}
    return write_redrawn(directory, kind(kind.config_class(**own)), dtype)
