"""TracedSpec: a decoder that `transformers` defines, as far as its config tells. Torch-free.

The built-in table wins; every other `…ForCausalLM` is traced from the model that `transformers` has
of it. A request is computed from the config alone; the build holds the sizes below against that
model, so a config that leaves one out is refused there and never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.digest import Digest
from vcc.cache.errors import ModelError
from vcc.engine.models.config_fields import mend, positive
from vcc.engine.models.decoder_spec import DecoderSpec
from vcc.engine.models.layer_ropes import NO_ROPE
from vcc.engine.models.transformers_sources import may_have

Config = Mapping[str, Any]

ENDINGS = ("ForCausalLM", "LMHeadModel")
"""How `transformers` calls decoders with a head over the vocabulary."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads")
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")
"""Names of one size in configs of different families."""

MOST_LAYERS = 10_000

NOT_THE_MODEL = frozenset(
    {
        *("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"),
        *("_attn_implementation_autoset", "auto_map", "task_specific_params", "architectures"),
        *("bos_token_id", "eos_token_id"),
    }
)
"""Fields that change nothing in the code of a model."""


@dataclass(frozen=True, slots=True)
class TracedSpec(DecoderSpec):
    """A decoder of `transformers`; equal specs are traced to equal code.

    Of the switches of a built-in decoder none applies: the traced model has its own.

    Attributes:
        text: the config as canonical JSON, without what does not change the model.
    """

    text: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The config that the spec was made from."""
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def digest(self) -> str:
        """Of the config, for requests."""
        return Digest.of(self.text.encode()).hex


def traced_of(config: Config, known: Container[str]) -> TracedSpec | None:
    """The spec of a decoder that is not built in; None for any other model.

    Args:
        config: the parsed `config.json`.
        known: architectures that are built in or refused by name.

    Raises:
        ModelError: a setting that no step has, or a size is missing or contradictory.
    """
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name in known or not name.endswith(ENDINGS):
        return None
    if not may_have(name, config):
        return None
    _check_settings(name, config)
    return traced_spec(name, config)


def traced_entries(spec: TracedSpec) -> tuple[tuple[str, str], ...]:
    """What a request says of the model: its config, field by field."""
    return (
        ("model.architecture", spec.architecture),
        ("model.quantisation", "none"),
        *config_entries(spec.config),
    )


def config_entries(config: Config) -> tuple[tuple[str, str], ...]:
    """A config field by field, without what does not change the model."""
    kept = json.loads(canonical_config(config))
    return tuple((f"model.config.{name}", _text(value)) for name, value in kept.items())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _check_settings(name: str, config: Config) -> None:
    refuse_quantised(config)
    for field, why in REFUSED_FLAGS.items():
        if config.get(field):
            raise ModelError(
                f"{field} is not supported for {name}",
                why,
                f"set {field} to false if the model was trained without it",
            )
    kind = _rope_kind(config)
    if kind in ROPES_BY_LENGTH:
        raise ModelError(
            f"rope type {kind!r} is not supported for {name}",
            "its frequencies depend on the length of the running sequence",
            "vcc compile --list-models names the decoders that have it built in",
        )


REFUSED_FLAGS = {
    "is_encoder_decoder": "a step has one stack of layers, without cross attention",
    "add_cross_attention": "a step has no other model's states to attend to",
    "use_bidirectional_attention": "decoders are causal here",
    "alibi": "its bias on the scores is not in the attention operator",
}
"""Settings of a config that no step has; the build refuses by what a model does as well."""

ROPES_BY_LENGTH = ("dynamic", "longrope", "su")


def _rope_kind(config: Config) -> str:
    told = (config.get(name) for name in ("rope_parameters", "rope_scaling"))
    given = [one for one in told if isinstance(one, Mapping)]
    by_layer = [one for some in given for one in some.values() if isinstance(one, Mapping)]
    several = [*given, *by_layer]
    kinds = [str(one.get("rope_type") or one.get("type") or "") for one in several]
    return next((kind for kind in kinds if kind in ROPES_BY_LENGTH), "")


def refuse_quantised(config: Config) -> None:
    """Raise ModelError for a checkpoint that says that its weights are quantised."""
    declared = config.get("quantization_config") or config.get("compression_config")
    if declared:
        method = declared.get("quant_method") if isinstance(declared, Mapping) else None
        raise ModelError(
            f"quantised checkpoint ({method or 'unnamed method'!s:.40}) is not supported",
            "its weights need kernels that models of transformers are not traced with",
            "use the unquantised checkpoint of the model",
        )


def traced_spec(name: str, config: Config) -> TracedSpec:
    """The spec of a config whose architecture is not in the table.

    Raises:
        ModelError: a size is missing or contradictory.
    """
    hidden, heads = _size(config, HIDDEN), _size(config, HEADS)
    head_dim = config.get("head_dim")
    if head_dim is None and hidden % heads:
        raise ModelError(
            "the hidden size is not a multiple of the heads",
            f"{hidden} and {heads}",
            mend("head_dim"),
        )
    layers = _size(config, LAYERS, MOST_LAYERS)
    return TracedSpec(
        architecture=name,
        text=canonical_config(config),
        vocab=positive(config, "vocab_size"),
        hidden=hidden,
        intermediate=0,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=hidden // heads if head_dim is None else positive(config, "head_dim"),
        max_positions=_size(config, POSITIONS),
        eps=0.0,
        norm_offset=0.0,
        tied=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sandwich=False,
        activation="",
        embed_scale=1.0,
        scale=0.0,
        attention_cap=0.0,
        logit_cap=0.0,
        windows=(0,) * layers,
        ropes=(),
        layer_ropes=(NO_ROPE,) * layers,
    )


def canonical_config(config: Config) -> str:
    """A config as one text, whatever the order of its fields."""
    kept = {name: value for name, value in config.items() if name not in NOT_THE_MODEL}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def _kv_heads(config: Config, heads: int) -> int:
    if config.get("multi_query") is True:
        return 1
    given = next((name for name in KV_HEADS if config.get(name) is not None), None)
    return heads if given is None else positive(config, given)


def _size(config: Config, names: tuple[str, ...], most: int | None = None) -> int:
    name = next((name for name in names if config.get(name) is not None), names[0])
    return positive(config, name) if most is None else positive(config, name, most=most)
