"""The architecture table: which decoders are built in, and how a config becomes a DecoderSpec.

Torch-free: a model's request is computed from here before torch is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import (
    flag,
    name_in,
    positive,
    quantisation_of,
    scalar,
    whole,
)
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.rope import rope_of
from vcc.engine.models.windows import (
    alternate_layers_slide,
    every_layer_slides,
    full_attention,
    upper_layers_slide,
)

__all__ = ["ARCHITECTURES", "LATER", "Architecture", "DecoderSpec", "spec_of"]

Config = Mapping[str, Any]

MOST_LAYERS, WIDEST_HEAD = 10_000, 65_536
"""Far above any model, low enough that a hostile config cannot fill memory."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row of the table: what an architecture fixes, and where its config says the rest.

    Attributes:
        qkv_bias, o_bias, mlp_bias: True, False, or the config field that decides.
        head_dim: default head size; 0 means hidden / heads.
        kv_heads: default number of key heads; 0 means as many as query heads.
        windows: the rule that gives each layer its window.
        activation_field: config field with the activation's name.
        pre_attn_scalar: scores are scaled by `query_pre_attn_scalar ** -0.5`.
        partial_rope: heads may be rotated in part.
    """

    windows: Callable[[Config, int], tuple[int, ...]]
    qkv_bias: bool | str = False
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


ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(
        full_attention,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        max_positions=2048,
    ),
    "MistralForCausalLM": Architecture(every_layer_slides, kv_heads=8, max_positions=131072),
    "Qwen2ForCausalLM": Architecture(upper_layers_slide, qkv_bias=True, kv_heads=32),
    "Qwen3ForCausalLM": Architecture(
        upper_layers_slide,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
        kv_heads=32,
        head_dim=128,
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
    ),
}

LATER = ("Gemma 3", "Phi-3", "Mixtral", "Qwen2-MoE", "Qwen3-MoE")

REFUSED = {
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

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def spec_of(config: Config) -> DecoderSpec:
    """The DecoderSpec of a parsed `config.json`.

    Raises:
        ModelError: the architecture, quantisation or a setting is not supported, or a size is
            missing or contradictory.
    """
    name = _architecture_name(config)
    _refuse_quantised(config)
    row = ARCHITECTURES[name]
    hidden, heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    head_dim = _head_dim(config, row, hidden, heads)
    layers = positive(config, "num_hidden_layers", most=MOST_LAYERS)
    spec = DecoderSpec(
        architecture=name,
        vocab=positive(config, "vocab_size"),
        hidden=hidden,
        intermediate=positive(config, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=whole(config, "num_key_value_heads", row.kv_heads) or heads,
        head_dim=head_dim,
        max_positions=positive(config, "max_position_embeddings", row.max_positions),
        eps=scalar(config, "rms_norm_eps", 1e-6),
        norm_offset=row.norm_offset,
        tied=flag(config, "tie_word_embeddings", row.tied),
        qkv_bias=_switch(config, row.qkv_bias),
        o_bias=_switch(config, row.o_bias),
        mlp_bias=_switch(config, row.mlp_bias),
        qk_norm=row.qk_norm,
        sandwich=row.sandwich,
        activation=ACTIVATIONS[
            name_in(config, row.activation_field, row.activation, tuple(ACTIVATIONS))
        ],
        embed_scale=hidden**0.5 if row.scaled_embedding else 1.0,
        scale=_score_scale(config, row, head_dim),
        attention_cap=_cap(config, "attn_logit_softcapping", row.attention_cap),
        logit_cap=_cap(config, "final_logit_softcapping", row.logit_cap),
        windows=row.windows(config, layers),
        rope=rope_of(config, head_dim, 10000.0, row.partial_rope),
    )
    return _checked(spec, config)


def _architecture_name(config: Config) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str) and name in ARCHITECTURES:
        return name
    supported = f"supported: {', '.join(ARCHITECTURES)}; planned: {', '.join(LATER)}"
    if not isinstance(name, str):
        raise ModelError("config.json names no architecture", "`architectures` is empty", supported)
    why = f"it uses {REFUSED[name]}" if name in REFUSED else "no decoder for it is built in"
    raise ModelError(f"architecture {name} is not supported", why, supported)


def _refuse_quantised(config: Config) -> None:
    method = quantisation_of(config)
    if method is not None:
        raise ModelError(
            f"quantised checkpoint ({method}) is not supported",
            "its weights need kernels that are not built in",
            "use the unquantised checkpoint of the model",
        )


def _switch(config: Config, rule: bool | str) -> bool:
    return flag(config, rule, False) if isinstance(rule, str) else rule


def _score_scale(config: Config, row: Architecture, head_dim: int) -> float:
    if not row.pre_attn_scalar:
        return float(head_dim**-0.5)
    scaled = scalar(config, "query_pre_attn_scalar", 256.0)
    if scaled <= 0:
        raise ModelError("query_pre_attn_scalar must be positive", f"it is {scaled}")
    return float(scaled**-0.5)


def _cap(config: Config, field: str, default: float | None) -> float:
    """A soft cap: null means none; architectures without the field have none."""
    if default is None or config.get(field, default) is None:
        return 0.0
    return scalar(config, field, default)


def _head_dim(config: Config, row: Architecture, hidden: int, heads: int) -> int:
    given = whole(config, "head_dim", row.head_dim, WIDEST_HEAD)
    if not given and hidden % heads:
        raise ModelError(
            "hidden_size is not a multiple of num_attention_heads",
            f"{hidden} and {heads}",
            "set head_dim in config.json if heads are narrower on purpose",
        )
    size = given or hidden // heads
    if size > WIDEST_HEAD:
        raise ModelError("heads are too wide", f"{size} values, at most {WIDEST_HEAD}")
    return size


def _checked(spec: DecoderSpec, config: Config) -> DecoderSpec:
    if spec.heads % spec.kv_heads:
        raise ModelError(
            "num_attention_heads is not a multiple of num_key_value_heads",
            f"{spec.heads} and {spec.kv_heads}",
        )
    if config.get("use_bidirectional_attention"):
        raise ModelError("use_bidirectional_attention is not supported", "decoders are causal here")
    return spec
