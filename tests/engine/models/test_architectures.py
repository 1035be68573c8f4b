"""From config.json to DecoderSpec: defaults as in transformers, and refusals by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import ARCHITECTURES as FAMILIES

from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import ARCHITECTURES, DecoderSpec, spec_of
from vcc.engine.models.bindings import expected_tensors, laid_out
from vcc.engine.models.constants import constants_of

SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def spec(arch: str = "LlamaForCausalLM", **fields: Any) -> DecoderSpec:
    return spec_of({"architectures": [arch], **SMALL, **fields})


@pytest.mark.parametrize("arch", FAMILIES)
def test_defaults_and_tensor_shapes_are_those_of_transformers(arch: str) -> None:
    """A config.json may leave out whatever equals the default."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    full = AutoConfig.for_model(arch, num_hidden_layers=2)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(full)
    sparse = {"architectures": [FAMILIES[arch]], **_sizes(full)}
    assert spec_of(sparse) == spec_of({**full.to_dict(), "architectures": [FAMILIES[arch]]})
    theirs = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert expected_tensors(laid_out(spec_of(sparse), theirs)) == theirs


def _sizes(config: Any) -> dict[str, Any]:
    names = (*SMALL, "max_position_embeddings")
    return {name: getattr(config, name) for name in names if name != "num_key_value_heads"}


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({}, (0, 0, 0, 0)),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}, (0, 0, 0, 8)),
        ({"use_sliding_window": False, "sliding_window": 8}, (0, 0, 0, 0)),
        ({"use_sliding_window": True, "sliding_window": None}, (0, 0, 0, 0)),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (8, 0, 8, 0),
        ),
    ],
)
def test_qwen_windows(fields: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert spec("Qwen3ForCausalLM", **fields).windows == windows


def test_mistral_windows_all_layers_or_none() -> None:
    assert spec("MistralForCausalLM", sliding_window=8).windows == (8, 8, 8, 8)
    assert spec("MistralForCausalLM", sliding_window=None).windows == (0, 0, 0, 0)


def test_gemma2_alternates_and_scales() -> None:
    found = spec("Gemma2ForCausalLM", sliding_window=8, query_pre_attn_scalar=16, head_dim=16)
    assert found.windows == (8, 0, 8, 0)
    assert (found.scale, found.embed_scale, found.norm_offset) == (0.25, 8.0, 1.0)
    assert (found.attention_cap, found.logit_cap, found.tied) == (50.0, 30.0, True)
    assert spec("Gemma2ForCausalLM", attn_logit_softcapping=None).attention_cap == 0.0


def test_an_unknown_architecture_names_what_is_supported() -> None:
    with pytest.raises(ModelError, match="OddForCausalLM") as caught:
        spec("OddForCausalLM")
    for name in ARCHITECTURES:
        assert name in caught.value.hint


@pytest.mark.parametrize(
    ("arch", "word"),
    [
        ("DeepseekV3ForCausalLM", "MLA"),
        ("JambaForCausalLM", "Mamba"),
        ("Mamba2ForCausalLM", "Mamba"),
    ],
)
def test_kinds_that_are_never_built_in_are_refused_by_name(arch: str, word: str) -> None:
    with pytest.raises(ModelError) as caught:
        spec(arch)
    assert word in caught.value.why


@pytest.mark.parametrize("method", ["awq", "gptq", "modelopt", "mxfp4"])
def test_quantised_checkpoints_are_refused_by_name(method: str) -> None:
    with pytest.raises(ModelError, match=method):
        spec(quantization_config={"quant_method": method})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"vocab_size": 2**31}, "vocab_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "num_attention_heads"),
        ({"num_attention_heads": 65, "num_key_value_heads": 65}, "num_attention_heads"),
        ({"hidden_size": 2**20, "num_attention_heads": 1, "num_key_value_heads": 1}, "heads"),
        ({"num_hidden_layers": 2**30}, "num_hidden_layers"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"architectures": []}, "`architectures` is empty"),
        ({"architectures": "LlamaForCausalLM"}, "`architectures` is no list of names"),
        ({"architectures": None}, "architecture"),
        ({"architectures": [{}]}, "architecture"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
    ],
)
def test_unusable_fields_are_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError) as caught:
        spec(**fields)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_types": ["full_attention"]},
        {"layer_types": "full_attention"},
        {"layer_types": ["chunked_attention"] * 4},
        {"layer_types": ["sliding_attention"] * 4, "use_sliding_window": False},
    ],
)
def test_layer_types_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="layer"):
        spec("Qwen2ForCausalLM", **fields)


def test_a_layer_mix_that_transformers_ignores_is_refused() -> None:
    for mixed in (["sliding_attention", "full_attention"] * 2, False):
        with pytest.raises(ModelError, match="layer_types"):
            spec("MistralForCausalLM", layer_types=mixed)


def test_bidirectional_attention_is_refused() -> None:
    with pytest.raises(ModelError, match="bidirectional"):
        spec("Gemma2ForCausalLM", use_bidirectional_attention=True)


ROPE_FIELDS = (
    *("rope_type", "factor", "low_freq_factor", "high_freq_factor", "rope_theta"),
    *("short_factor", "long_factor", "full_attention", "sliding_attention"),
)
MODEL_FIELDS = (
    *SMALL,
    *("head_dim", "rope_scaling", "rope_theta", "layer_types", "sliding_window", "rms_norm_eps"),
    *("use_sliding_window", "max_window_layers", "max_position_embeddings", "attention_bias"),
    *("query_pre_attn_scalar", "attn_logit_softcapping", "quantization_config", "hidden_act"),
    *("rope_parameters", "rope_local_base_freq", "sliding_window_pattern", "no_rope_layers"),
    *("no_rope_layer_interval", "num_experts", "num_local_experts", "num_experts_per_tok"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "decoder_sparse_step"),
    *("mlp_only_layers", "norm_topk_prob", "partial_rotary_factor"),
    "original_max_position_embeddings",
)
numbers = st.integers(-2, 2**70) | st.floats() | st.sampled_from([0, 1, 2, 8, 64])
words = st.sampled_from(
    ["yarn", "longrope", "llama3", "linear", "default", "full_attention", "silu", ""]
)
plain = st.none() | st.booleans() | numbers | words
factors = st.lists(st.floats(0.5, 8.0), min_size=8, max_size=8)
ropes = st.dictionaries(
    st.sampled_from(ROPE_FIELDS),
    plain | factors | st.dictionaries(st.sampled_from(ROPE_FIELDS), plain),
)
values = plain | ropes | st.lists(plain, max_size=4)


def spec_or_error(arch: str, fields: dict[str, Any]) -> DecoderSpec | ModelError:
    try:
        return spec(arch, **fields)
    except ModelError as error:
        return error


@given(st.sampled_from(list(ARCHITECTURES)), st.dictionaries(st.sampled_from(MODEL_FIELDS), values))
def test_any_config_gives_a_usable_spec_or_a_model_error(arch: str, fields: dict[str, Any]) -> None:
    found = spec_or_error(arch, fields)
    if isinstance(found, ModelError):
        assert found.why, found
        assert found.hint, found
        return
    assert len(found.windows) == found.layers
    assert found.layers > 64 or expected_tensors(found)
    assert found.experts is None or found.experts.top_k <= found.experts.count
    made = constants_of(found.for_length(found.usual_length))
    assert all(np.isfinite(values).all() for values in made.values())
