"""Values of config.json that transformers takes for an error are none of ours either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vcc.cache.errors import ModelError
from vcc.engine.models.architectures import DecoderSpec, spec_of
from vcc.engine.models.hf_directory import read_directory

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def config_of(family: str, **fields: Any) -> dict[str, Any]:
    return {"architectures": [f"{family}ForCausalLM"], **SMALL, **fields}


def spec(family: str, **fields: Any) -> DecoderSpec:
    return spec_of(config_of(family, **fields))


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("Llama", "num_key_value_heads", 0),
        ("Llama", "head_dim", 0),
        ("Llama", "hidden_act", None),
        ("Gemma2", "hidden_activation", None),
        ("Mixtral", "hidden_act", None),
        *(("Llama", name, value) for name in ("rope_parameters", "rope_scaling")
          for value in (0, [], False, "")),
        ("SmolLM3", "no_rope_layer_interval", 0),
        ("SmolLM3", "no_rope_layers", []),
        *((family, "sliding_window", 0) for family in ("Mixtral", "Mistral", "Phi3", "Gemma2")),
        *((family, "layer_types", value) for family in ("Llama", "Mixtral", "Gemma3", "Qwen2")
          for value in ("full_attention", ["x"] * 4, ["full_attention"], [], 0, [None] * 4)),
    ],
)  # fmt: skip
def test_a_value_without_a_meaning_is_refused_with_a_hint(
    family: str, field: str, value: Any
) -> None:
    with pytest.raises(ModelError) as told:
        spec(family, **{field: value})
    said = told.value
    assert field in f"{said.what} {said.why}" or "layer type" in said.what
    assert said.why
    assert said.hint


def test_a_window_is_looked_at_where_it_is_used() -> None:
    for used, refused in ((True, True), (False, False)):
        fields = {"use_sliding_window": used, "sliding_window": 0, "max_window_layers": 0}
        if refused:
            with pytest.raises(ModelError, match="sliding_window"):
                spec("Qwen2", **fields)
        else:
            assert spec("Qwen2", **fields).windows == (0,) * 4


def test_an_interval_is_looked_at_where_no_list_is_given() -> None:
    found = spec("SmolLM3", no_rope_layer_interval=0, no_rope_layers=[1, 0, 1, 1])
    assert found.layer_ropes == (0, -1, 0, 0)


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_key_heads_of_null_are_as_many_as_query_heads_as_in_transformers(family: str) -> None:
    from transformers import AutoConfig

    theirs = AutoConfig.for_model(
        family.lower(), num_attention_heads=4, num_key_value_heads=None
    ).num_key_value_heads
    assert spec(family, num_key_value_heads=None).kv_heads == theirs == 4


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_types_that_transformers_ignores_change_nothing(family: str) -> None:
    plain = spec(family)
    assert spec(family, layer_types=["full_attention"] * 4) == plain
    assert spec(family, layer_types=None) == plain
    assert spec(family, rope_parameters={}, rope_scaling=None) == plain


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", [7, "float8_e4m3fn", "auto", "int8", [], ""])
def test_a_dtype_that_is_none_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_of("Llama", **{name: value})))
    with pytest.raises(ModelError, match=f"^{name} of config.json") as told:
        read_directory(tmp_path, "none")
    assert "bfloat16" in told.value.hint
    file.write_text(json.dumps(config_of("Llama", **{name: "torch.bfloat16"})))
    assert {one.dtype for one in read_directory(tmp_path, "none").tensors.values()} == {"bfloat16"}
