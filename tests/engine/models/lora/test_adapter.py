"""Adapter directories: what fits, and every refusal by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint
from support.decoders import spec

from vcc.cache.errors import ConfigError, ModelError
from vcc.engine.config.types import ModelConfig
from vcc.engine.models.lora.adapter import Adapter, open_adapter
from vcc.engine.models.lora.spec import LoraSpec, check_lora, check_not_recorded, projections

LORA = LoraSpec(slots=4, rank=8)
LLAMA = spec("llama", 2)
Q = "model.layers.0.self_attn.q_proj"
NAME = f"base_model.model.{Q}.lora_A.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("base"), "llama", num_hidden_layers=2)


def opened(directory: Path, lora: LoraSpec = LORA, of: Any = LLAMA) -> Adapter:
    return open_adapter(directory, projections(of, lora), lora)


def change(directory: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = directory / "adapter_model.safetensors"
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


def test_an_adapter_has_a_pair_for_each_module_with_its_scale(base: Path, tmp_path: Path) -> None:
    found = opened(make_adapter(tmp_path, base, rank=8, alpha=12.0))
    assert len(found.pairs) == 14
    pair = found.pairs[Q]
    assert (pair.a.shape, pair.b.shape, pair.scale) == ((8, 64), (64, 8), 1.5)


def test_ranks_and_alphas_by_module(base: Path, tmp_path: Path) -> None:
    patterns = {"ranks": {"q_proj": 4}, "alpha_pattern": {"layers.1.mlp.down_proj": 2.0}}
    found = opened(make_adapter(tmp_path, base, rank=8, alpha=16.0, use_rslora=True, **patterns))
    assert found.pairs[Q].scale == 16.0 / math.sqrt(4)
    assert found.pairs["model.layers.1.mlp.down_proj"].scale == 2.0 / math.sqrt(8)
    assert found.pairs["model.layers.0.mlp.down_proj"].scale == 16.0 / math.sqrt(8)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is None"),
        ({"use_dora": True}, "use_dora is set: it is DoRA"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_bias": True}, "lora_bias is set"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is set: it replaces whole modules"),
        ({"fan_in_fan_out": True}, "stored transposed"),
        ({"target_parameters": ["mlp.experts.gate_up_proj"]}, "such as experts"),
        ({"layer_replication": [[0, 2]]}, "repeats layers"),
        ({"alora_invocation_tokens": [1]}, "some tokens of a prompt only"),
        ({"init_lora_weights": "pissa_niter_16"}, "the model's weights were changed"),
        ({"init_lora_weights": "olora"}, "the model's weights were changed"),
        ({"of_a_later_release": 3}, "'of_a_later_release' is set, and its meaning is not known"),
        ({"r": 0}, "r is 0, not a whole number from 1"),
        ({"r": 8.5}, "r is 8.5"),
        ({"r": True}, "r is True"),
        ({"r": 10**9}, "r is 1000000000"),
        ({"use_rslora": "yes"}, "use_rslora is 'yes', neither true nor false"),
        ({"lora_alpha": "16"}, "lora_alpha is '16', not a number from 1e-06 to 65536"),
        ({"lora_alpha": 1e-300}, "lora_alpha is 1e-300, not a number from 1e-06 to 65536"),
        ({"lora_alpha": 65537}, "lora_alpha is 65537, not a number from 1e-06 to 65536"),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
        ({"rank_pattern": {"(a+)+$": 4}}, "only plain names of modules"),
        ({"rank_pattern": [4]}, "rank_pattern is no object"),
        ({"alpha_pattern": {"q_proj": -1}}, "alpha_pattern.q_proj is -1"),
        (
            {"alpha_pattern": {"q_proj": 1e-300}},
            "alpha_pattern.q_proj is 1e-300, not a number from 1e-06 to 65536",
        ),
        ({"target_modules": r".*\.q_proj"}, "target_modules is the expression '.*"),
        ({"target_modules": {"q_proj": 1}}, "target_modules is {'q_proj': 1}, no list of names"),
        ({"exclude_modules": ["(a+)+$"]}, "exclude_modules holds '(a+)+$': only plain names"),
        ({"layers_to_transform": [-1]}, "layers_to_transform is [-1], no numbers of layers"),
        ({"layers_to_transform": True}, "layers_to_transform is True, no numbers of layers"),
        ({"layers_pattern": "layers"}, "layers_pattern is set, and layers_to_transform is not"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    base: Path, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    make_adapter(tmp_path, base, **fields)
    with pytest.raises(ModelError, match="is not supported") as caught:
        opened(tmp_path)
    assert words in caught.value.why
    assert "docs/lora.md" in caught.value.hint


def test_fields_that_are_set_to_nothing_are_not_refused(base: Path, tmp_path: Path) -> None:
    nothing = {"use_qalora": False, "of_a_later_release": None, "eva_config": None}
    assert opened(make_adapter(tmp_path, base, **nothing)).pairs


def test_an_adapter_of_another_model_names_five_differences(base: Path, tmp_path: Path) -> None:
    make_adapter(tmp_path, base)
    with pytest.raises(ModelError, match="does not fit the model") as caught:
        opened(tmp_path, of=spec("llama", 2, hidden_size=32))
    assert caught.value.why.count(" it would be ") == 5
    down = "model.layers.0.mlp.down_proj.lora_B.weight"
    assert f"{down} is [64, 8], it would be [32, 8]" in caught.value.why
    assert caught.value.why.endswith("and 17 more")
    with pytest.raises(ModelError, match="does not fit the model") as caught:
        opened(tmp_path, of=spec("llama", 1))
    assert "model.layers.1.mlp.down_proj is no projection of this model" in caught.value.why


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.layers.0.mlp.experts.3.up_proj", "is of experts"),
        ("lm_head", "is of the vocabulary"),
        ("model.layers.0.self_attn.rotary", "is no projection of this model"),
    ],
)
def test_modules_without_a_place_say_why(base: Path, tmp_path: Path, name: str, words: str) -> None:
    make_adapter(tmp_path, base)
    own = f"base_model.model.{name}.lora_A.weight"
    change(tmp_path, lambda tensors: tensors.update({own: torch.zeros(8, 64)}))
    with pytest.raises(ModelError, match="does not fit") as caught:
        opened(tmp_path)
    assert f"{name} {words}" in caught.value.why


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("base_model.model.model.embed_tokens.lora_embedding_A", "adapts embeddings"),
        (f"base_model.model.{Q}.lora_magnitude_vector", "is of DoRA"),
        (f"{Q}.lora_A.weight", "is no tensor of LoRA"),
        (f"base_model.model.{Q}.weight", "is no tensor of LoRA"),
    ],
)
def test_tensors_that_are_no_matrices_say_what_they_are(
    base: Path, tmp_path: Path, name: str, words: str
) -> None:
    make_adapter(tmp_path, base)
    change(tmp_path, lambda tensors: tensors.update({name: torch.zeros(8, 64)}))
    with pytest.raises(ModelError, match="does not fit") as caught:
        opened(tmp_path)
    assert words in caught.value.why


def test_a_rank_above_the_declared_one_says_how_to_compile(base: Path, tmp_path: Path) -> None:
    make_adapter(tmp_path, base, rank=32)
    with pytest.raises(ModelError, match="has rank 32") as caught:
        opened(tmp_path)
    assert caught.value.why == "the code was compiled for ranks up to 8"
    assert caught.value.hint == "compile with --max-lora-rank 32"


def test_missing_malformed_and_pickled_files_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no adapter at"):
        opened(tmp_path / "nowhere")
    make_adapter(tmp_path, base)
    change(tmp_path, lambda tensors: tensors.pop(NAME))
    with pytest.raises(ModelError, match="does not fit") as caught:
        opened(tmp_path)
    assert f"{Q}.lora_A.weight is missing" in caught.value.why
    make_adapter(tmp_path, base)
    change(tmp_path, lambda tensors: tensors.update({NAME: torch.zeros(8, 64).to(torch.int32)}))
    with pytest.raises(ModelError, match="does not fit") as caught:
        opened(tmp_path)
    assert "matrices are floating-point" in caught.value.why
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\x00" * 4)
    with pytest.raises(ModelError, match="only in part here"):
        opened(tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights in"):
        opened(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(b"PK")
    with pytest.raises(ModelError, match="not in safetensors form") as caught:
        opened(tmp_path)
    assert "pickle" in caught.value.why
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelError, match="not a JSON object"):
        opened(tmp_path)


def test_an_adapter_without_matrices_is_refused(base: Path, tmp_path: Path) -> None:
    make_adapter(tmp_path, base)
    change(tmp_path, lambda tensors: tensors.clear())
    with pytest.raises(ModelError, match="does not fit") as caught:
        opened(tmp_path)
    assert caught.value.why == "it holds no matrices"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "bias", "use_rslora"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    ]
)


@given(field=FIELDS, value=JSON)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_value_of_a_field_is_read_or_refused(
    base: Path, tmp_path: Path, field: str, value: Any
) -> None:
    if not (tmp_path / "adapter_config.json").exists():
        make_adapter(tmp_path, base)
    file = tmp_path / "adapter_config.json"
    before = file.read_text()
    file.write_text(json.dumps(json.loads(before) | {field: value}))
    try:
        found = len(opened(tmp_path).pairs)
    except ModelError as error:
        found = len(error.why)
    finally:
        file.write_text(before)
    assert found


def test_target_modules_narrow_what_adapters_may_change(base: Path, tmp_path: Path) -> None:
    lora = LoraSpec(4, 8, ("q_proj", "down_proj"))
    assert {one.parameter.split(".", 2)[2] for one in projections(LLAMA, lora)} == {
        "attn.qkv",
        "mlp.down",
    }
    make_adapter(tmp_path, base, modules=("self_attn.o_proj",))
    with pytest.raises(ModelError, match="does not fit"):
        opened(tmp_path, lora)


def test_models_without_a_place_for_adapters_are_refused() -> None:
    asked = ModelConfig("m", enable_lora=True, max_loras=1, max_lora_rank=8)
    check_lora(asked, LLAMA)
    check_lora(ModelConfig("m", enable_lora=False), None)
    with pytest.raises(ConfigError, match="needs a built-in decoder"):
        check_lora(asked, None)
    strange = ModelConfig("m", enable_lora=True, lora_target_modules=("query",))
    with pytest.raises(ConfigError, match='names "query"') as caught:
        check_lora(strange, LLAMA)
    assert "q_proj" in caught.value.why
    with pytest.raises(ConfigError, match="goes with compiled code"):
        check_not_recorded(asked, recorded=True)


def test_fused_projections_of_a_checkpoint_are_one_part() -> None:
    (qkv, *_) = projections(spec("phi3", 1), LORA)
    assert qkv.modules == ("model.layers.0.self_attn.qkv_proj",)
    assert qkv.widths == (128,)
