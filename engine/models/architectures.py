"""How a config becomes a DecoderSpec by the row of its architecture.

Torch-free: a model's request is computed from here before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.architecture_table import ARCHITECTURES, REFUSED, Architecture
from vcc.engine.models.config_fields import (
    flag,
    mend,
    name_in,
    positive,
    scalar,
    whole,
)
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.layer_ropes import HeadShape
from vcc.engine.models.quant.kv import kv_of
from vcc.engine.models.quant.parse import quant_of
from vcc.engine.models.remote_code import brings_code
from vcc.engine.models.traced_spec import traced_of

__all__ = ["ARCHITECTURES", "REFUSED", "Architecture", "DecoderSpec", "spec_of"]

Config = Mapping[str, Any]

MOST_LAYERS, WIDEST_HEAD = 10_000, 65_536
"""Far above any model, low enough that a hostile config cannot fill memory."""


ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def spec_of(config: Config) -> DecoderSpec:
    """The DecoderSpec of a parsed `config.json`.

    Raises:
        ModelError: the architecture, quantisation or a setting is not supported, or a size is
            missing or contradictory.
    """
    traced = traced_of(config, known={*ARCHITECTURES, *REFUSED})
    if traced is not None:
        return traced
    name = _architecture_name(config)
    quant = quant_of(config)
    row = ARCHITECTURES[name]
    hidden, heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    head_dim = _head_dim(config, row, hidden, heads)
    layers = positive(config, "num_hidden_layers", most=MOST_LAYERS)
    windows = row.windows(config, layers)
    ropes, layer_ropes = row.ropes(
        config, HeadShape(head_dim, windows, row.theta, row.partial_rope)
    )
    spec = DecoderSpec(
        architecture=name,
        vocab=positive(config, "vocab_size"),
        hidden=hidden,
        intermediate=positive(config, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(config, row, heads),
        head_dim=head_dim,
        max_positions=positive(config, "max_position_embeddings", row.max_positions),
        eps=scalar(config, "rms_norm_eps", row.eps),
        norm_offset=row.norm_offset,
        tied=flag(config, "tie_word_embeddings", row.tied),
        qkv_bias=_switch(config, row.qkv_bias, row.qkv_bias_default),
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
        windows=windows,
        ropes=ropes,
        layer_ropes=layer_ropes,
        experts=row.experts(config, layers) if row.experts else None,
        quant=quant,
        kv=kv_of(config),
    )
    return _checked(spec, config)


NOT_KNOWN = (
    "no decoder for it is built in, and transformers has no decoder and no model of one forward "
    "by that name and model_type"
)
"""Why an architecture is refused that is not refused by name."""


def _architecture_name(config: Config) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str) and name in ARCHITECTURES:
        return name
    supported = f"built in: {', '.join(ARCHITECTURES)}; others as transformers has "
    supported += "them, and any module by package.module:factory"
    if not isinstance(name, str):
        told = "empty" if names in (None, []) else "no list of names"
        raise ModelError(
            "config.json names no architecture", f"`architectures` is {told}", supported
        )
    why = f"it uses {REFUSED[name]}" if name in REFUSED else NOT_KNOWN
    if brings_code(config):
        why += "; code that the checkpoint brings along is not run, trusted or not"
    raise ModelError(f"architecture {name} is not supported", why, supported)


def _switch(config: Config, rule: bool | str, default: bool = False) -> bool:
    return flag(config, rule, default) if isinstance(rule, str) else rule


def _kv_heads(config: Config, row: Architecture, heads: int) -> int:
    """Key heads: null means as many as query heads, absent the architecture's default."""
    default = heads if "num_key_value_heads" in config else row.kv_heads or heads
    return positive(config, "num_key_value_heads", default)


def _score_scale(config: Config, row: Architecture, head_dim: int) -> float:
    if not row.pre_attn_scalar:
        return float(head_dim**-0.5)
    field = "query_pre_attn_scalar"
    scaled = scalar(config, field, 256.0)
    if scaled <= 0:
        raise ModelError("query_pre_attn_scalar must be positive", f"it is {scaled}", mend(field))
    return float(scaled**-0.5)


def _cap(config: Config, field: str, default: float | None) -> float:
    """A soft cap: null means none; architectures without the field have none."""
    if default is None or config.get(field, default) is None:
        return 0.0
    return scalar(config, field, default)


def _head_dim(config: Config, row: Architecture, hidden: int, heads: int) -> int:
    stated = config.get("head_dim") is not None
    given = (positive if stated else whole)(config, "head_dim", row.head_dim, WIDEST_HEAD)
    if not given and hidden % heads:
        raise ModelError(
            "hidden_size is not a multiple of num_attention_heads",
            f"{hidden} and {heads}",
            "set head_dim in config.json if heads are narrower on purpose",
        )
    size = given or hidden // heads
    if size > WIDEST_HEAD:
        raise ModelError(
            "heads are too wide", f"{size} values, at most {WIDEST_HEAD}", mend("head_dim")
        )
    return size


def _checked(spec: DecoderSpec, config: Config) -> DecoderSpec:
    if spec.heads % spec.kv_heads:
        raise ModelError(
            "num_attention_heads is not a multiple of num_key_value_heads",
            f"{spec.heads} and {spec.kv_heads}",
            mend("num_attention_heads", "num_key_value_heads"),
        )
    if config.get("use_bidirectional_attention"):
        raise ModelError(
            "use_bidirectional_attention is not supported",
            "decoders are causal here",
            "take a model that generates; this one is for embeddings",
        )
    return spec
