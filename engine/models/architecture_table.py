"""The architecture table: which decoders are built in, as data. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.engine.models.expert_spec import ExpertSpec, mixtral_experts, qwen_experts
from vcc.engine.models.layer_ropes import (
    HeadShape,
    Ropes,
    long_rope,
    one_rope,
    rope_by_window,
    some_layers_roped,
)
from vcc.engine.models.tensor_names import (
    DEFAULT_NAMES,
    FUSED_NAMES,
    MIXTRAL_NAMES,
    TensorNames,
)
from vcc.engine.models.windows import (
    alternate_layers_slide,
    every_layer_slides,
    full_attention,
    layers_without_rope_slide,
    lower_layers_alternate,
    pattern_slides,
    upper_layers_slide,
    window_if_given,
    window_if_used,
)

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row of the table: what an architecture fixes, and where its config says the rest.

    Attributes:
        qkv_bias, o_bias, mlp_bias: True, False, or the config field that decides.
        qkv_bias_default: what the field means where it is left out.
        head_dim: default head size; 0 means hidden / heads.
        kv_heads: default number of key heads; 0 means as many as query heads.
        windows: the rule that gives each layer its window.
        ropes: the rule that gives each layer its rope.
        experts: the rule that gives some layers experts; None means no layer has any.
        names: what the checkpoint's tensors are called.
        activation_field: config field with the activation's name.
        pre_attn_scalar: scores are scaled by `query_pre_attn_scalar ** -0.5`.
        partial_rope: heads may be rotated in part.
        theta: default base of the rope.
        eps: default of what norms add to the mean square.
        about: its own features, for the page and `--list-models`.
    """

    windows: Callable[[Config, int], tuple[int, ...]]
    ropes: Callable[[Config, HeadShape], Ropes] = one_rope
    experts: Callable[[Config, int], ExpertSpec | None] | None = None
    names: TensorNames = DEFAULT_NAMES
    qkv_bias: bool | str = False
    qkv_bias_default: bool = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    norm_offset: float = 0.0
    sandwich: bool = False
    scaled_embedding: bool = False
    pre_attn_scalar: bool = False
    attention_cap: float | None = None
    logit_cap: float | None = None
    tied: bool = False
    head_dim: int = 0
    kv_heads: int = 0
    activation_field: str = "hidden_act"
    activation: str = "silu"
    max_positions: int = 32768
    partial_rope: bool = False
    theta: float = 10000.0
    eps: float = 1e-6
    about: str = ""


ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(
        full_attention,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        max_positions=2048,
        about="biases by `attention_bias` and `mlp_bias`",
    ),
    "MistralForCausalLM": Architecture(
        every_layer_slides,
        kv_heads=8,
        max_positions=131072,
        about="one sliding window for all layers",
    ),
    "Qwen2ForCausalLM": Architecture(
        upper_layers_slide,
        qkv_bias=True,
        kv_heads=32,
        about="biases on query, key and value; windows in the upper layers",
    ),
    "Qwen3ForCausalLM": Architecture(
        upper_layers_slide,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        kv_heads=32,
        head_dim=128,
        about="norms of queries and keys; windows in the upper layers",
    ),
    "Gemma2ForCausalLM": Architecture(
        alternate_layers_slide,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm_offset=1.0,
        sandwich=True,
        scaled_embedding=True,
        pre_attn_scalar=True,
        attention_cap=50.0,
        logit_cap=30.0,
        tied=True,
        head_dim=256,
        kv_heads=4,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        max_positions=8192,
        about="norms before and after each block, windows in every other layer, soft caps on"
        " scores and logits, scaled embedding, gated GELU",
    ),
    "Gemma3ForCausalLM": Architecture(
        pattern_slides,
        ropes=rope_by_window,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        norm_offset=1.0,
        sandwich=True,
        scaled_embedding=True,
        pre_attn_scalar=True,
        logit_cap=0.0,
        tied=True,
        head_dim=256,
        kv_heads=4,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        max_positions=131072,
        theta=1000000.0,
        about="as Gemma 2 with norms of queries and keys in place of soft caps; five layers with"
        " a window for each without, and a rope of their own",
    ),
    "Phi3ForCausalLM": Architecture(
        window_if_given,
        ropes=long_rope,
        names=FUSED_NAMES,
        eps=1e-5,
        max_positions=4096,
        partial_rope=True,
        about="fused projections in the checkpoint, long rope, heads rotated in part",
    ),
    "SmolLM3ForCausalLM": Architecture(
        layers_without_rope_slide,
        ropes=some_layers_roped,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        kv_heads=4,
        tied=True,
        max_positions=32768,
        theta=2000000.0,
        about="no rope in every fourth layer",
    ),
    "MixtralForCausalLM": Architecture(
        window_if_given,
        experts=mixtral_experts,
        names=MIXTRAL_NAMES,
        eps=1e-5,
        kv_heads=8,
        max_positions=131072,
        theta=1000000.0,
        about="experts in every layer",
    ),
    "Qwen2MoeForCausalLM": Architecture(
        lower_layers_alternate,
        experts=qwen_experts(60, 4, 1408, 5632),
        qkv_bias="qkv_bias",
        qkv_bias_default=True,
        kv_heads=16,
        about="experts beside one that every token has and a gate weighs; dense layers by"
        " `decoder_sparse_step` and `mlp_only_layers`",
    ),
    "Qwen3MoeForCausalLM": Architecture(
        window_if_used,
        experts=qwen_experts(128, 8, 768, 0),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        kv_heads=4,
        about="norms of queries and keys; experts, dense layers by `decoder_sparse_step` and"
        " `mlp_only_layers`",
    ),
}

REFUSED = {
    "Gemma3ForConditionalGeneration": "a vision tower beside its decoder",
    "Phi4MultimodalForCausalLM": "vision and speech towers beside its decoder",
    "DeepseekV2ForCausalLM": "multi-head latent attention (MLA)",
    "DeepseekV3ForCausalLM": "multi-head latent attention (MLA)",
    "MambaForCausalLM": "state-space layers (Mamba)",
    "Mamba2ForCausalLM": "state-space layers (Mamba)",
    "JambaForCausalLM": "a hybrid of attention and Mamba layers",
    "BambaForCausalLM": "a hybrid of attention and Mamba layers",
    "FalconH1ForCausalLM": "a hybrid of attention and Mamba layers",
    "GraniteMoeHybridForCausalLM": "a hybrid of attention and Mamba layers",
    "NemotronHForCausalLM": "a hybrid of attention and Mamba layers",
    "Zamba2ForCausalLM": "a hybrid of attention and Mamba layers",
}
