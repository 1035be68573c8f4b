"""Small random checkpoints of decoders that are not built in, by what makes each family itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.checkpoints import SIZES, write_redrawn

ABOUT = {
    "GPT2LMHeadModel": "learned positions, one matrix of query, key and value, stored transposed",
    "OPTForCausalLM": "learned positions with an offset, biases everywhere",
    "GPTNeoXForCausalLM": "attention beside the feed-forward layer, heads rotated in part",
    "PhiForCausalLM": "the same with biases in all projections and in the head",
    "Starcoder2ForCausalLM": "layer norms with biases, grouped heads, a window",
    "Olmo2ForCausalLM": "norms after each block, and of queries and keys over all heads",
    "CohereForCausalLM": "parallel blocks, scaled logits, a rope by neighbours",
    "Cohere2ForCausalLM": "windows in three of four layers, no rope in the fourth",
    "GPTBigCodeForCausalLM": "one key head for all query heads",
    "OlmoeForCausalLM": "experts, norms of queries and keys",
    "GraniteForCausalLM": "multipliers of embeddings, scores, branches and logits",
}
"""What makes each family itself."""

FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {},
    "OPTForCausalLM": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    "PhiForCausalLM": {"partial_rotary_factor": 0.5, "num_key_value_heads": 2},
    "Starcoder2ForCausalLM": {"sliding_window": 24, "num_key_value_heads": 2},
    "Olmo2ForCausalLM": {"num_key_value_heads": 2},
    "CohereForCausalLM": {"num_key_value_heads": 2, "logit_scale": 0.25, "use_qk_norm": True},
    "Cohere2ForCausalLM": {"num_key_value_heads": 2, "sliding_window": 24, "head_dim": 16},
    "GPTBigCodeForCausalLM": {},
    "OlmoeForCausalLM": {"num_experts": 6, "num_experts_per_tok": 2, "num_key_value_heads": 2},
    "GraniteForCausalLM": {
        "num_key_value_heads": 2,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
        "logits_scaling": 4.0,
    },
}
"""Config fields beside the sizes, by architecture."""


ANY: Mapping[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 24,
    "num_hidden_layers": 4,
    "num_experts": 6,
    "num_local_experts": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "rotary_dim": 8,
    "pad_token_id": 0,
}
"""Config fields of all other families, each where a family has it."""

OTHERS = tuple(
    f"{name}ForCausalLM"
    for name in (
        "Afmoe",
        "Apertus1p5Text",
        "Apertus",
        "Arcee",
        "BitNet",
        "CodeGen",
        "Cwm",
        "Dots1",
        "Ernie4_5",
        "Ernie4_5_Moe",
        "Exaone4",
        "ExaoneMoe",
        "FlexOlmo",
        "GPTJ",
        "Gemma",
        "Glm4",
        "Glm4Moe",
        "Glm",
        "GraniteMoe",
        "GraniteMoeShared",
        "HYV3",
        "Helium",
        "HunYuanDenseV1",
        "HunYuanMoEV1",
        "HyperCLOVAX",
        "Jais2",
        "Kolibri1",
        "Laguna",
        "Lfm2",
        "Mellum",
        "MiniMaxM2",
        "Ministral3",
        "Ministral",
        "ModernBertDecoder",
        "Moshi",
        "NanoChat",
        "Nemotron",
        "Olmo3",
        "Olmo",
        "Persimmon",
        "SeedOss",
        "SolarOpen",
        "StableLm",
        "VaultGemma",
    )
)
"""Families that equal `transformers` as well; what makes each itself is not written down."""


def config_of(architecture: str, **fields: Any) -> dict[str, Any]:
    """The config of a family, or of another architecture, as transformers writes it."""
    import transformers

    kind = getattr(transformers, architecture)
    known = kind.config_class()
    own = {**SIZES, "num_key_value_heads": SIZES["num_attention_heads"]}
    more = ANY if architecture in OTHERS else FAMILIES.get(architecture, {})
    own |= {**more, **fields}
    own = {name: value for name, value in own.items() if hasattr(known, name)}
    text = kind.config_class(**own).to_json_string(use_diff=True)
    return {**json.loads(text), "architectures": [architecture]}


def make_traced(
    directory: Path, architecture: str, *, dtype: str = "float32", tied: bool = False, **fields: Any
) -> Path:
    """Write a checkpoint of one of the families; arguments as of `make_checkpoint`."""
    import transformers

    kind = getattr(transformers, architecture)
    config = config_of(architecture, **fields, tie_word_embeddings=tied)
    return write_redrawn(directory, kind(kind.config_class.from_dict(config)), dtype)
