"""Modules that an adapter's configuration leaves out have no matrices, as PEFT decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.adapters import make_adapter
from support.checkpoints import make_checkpoint
from support.decoders import spec

from vcc.cache.errors import ModelError
from vcc.engine.models.lora.adapter import open_adapter
from vcc.engine.models.lora.spec import LoraSpec, projections

LORA = LoraSpec(slots=4, rank=8)
LLAMA = spec("llama", 2)
Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("base"), "llama", num_hidden_layers=2)


LEFT_OUT: list[tuple[dict[str, Any], str, str]] = [
    ({"layers_to_transform": [1]}, "layers.0.mlp.down_proj", "layers_to_transform"),
    ({"layers_to_transform": 1}, "layers.0.mlp.down_proj", "layers_to_transform"),
    (
        {"layers_to_transform": [0, 1], "layers_pattern": ["blocks"]},
        "layers.0.mlp.down_proj",
        "layers_pattern",
    ),
    ({"exclude_modules": ["q_proj"]}, "layers.0.self_attn.q_proj", "exclude_modules"),
    (
        {"exclude_modules": ["model.layers.1.mlp.up_proj"]},
        "layers.1.mlp.up_proj",
        "exclude_modules",
    ),
    ({"target_modules": ["v_proj", "mlp.up_proj"]}, "layers.0.mlp.down_proj", "target_modules"),
    ({"target_modules": ["roj"]}, "layers.0.mlp.down_proj", "target_modules"),
    ({"target_modules": []}, "layers.0.mlp.down_proj", "target_modules"),
]


@pytest.mark.parametrize(("fields", "module", "field"), LEFT_OUT)
def test_matrices_that_the_configuration_leaves_out_are_refused(
    base: Path, tmp_path: Path, fields: dict[str, Any], module: str, field: str
) -> None:
    make_adapter(tmp_path, base, **fields)
    with pytest.raises(ModelError, match="does not fit the model") as caught:
        open_adapter(tmp_path, projections(LLAMA, LORA), LORA)
    why = f"model.{module} has matrices, but {field} of adapter_config.json leaves it out"
    assert why in caught.value.why


@pytest.mark.parametrize(
    "fields",
    [
        {"layers_to_transform": [0]},
        {"layers_to_transform": 0, "layers_pattern": "layers"},
        {"layers_to_transform": [1, 0], "layers_pattern": ["h", "layers"]},
        {"layers_to_transform": [], "exclude_modules": [], "layers_pattern": None},
        {"exclude_modules": ["layers.1.mlp.up_proj", "proj"]},
        {"target_modules": "all-linear"},
        {"target_modules": None},
        {"target_modules": ["self_attn.q_proj"]},
        {"target_modules": [Q], "layers_to_transform": [1]},
    ],
)
def test_matrices_that_the_configuration_names_are_taken(
    base: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    """As PEFT decides it: an exact name counts in any layer."""
    make_adapter(tmp_path, base, layers=[0], modules=("self_attn.q_proj",), **fields)
    assert list(open_adapter(tmp_path, projections(LLAMA, LORA), LORA).pairs) == [Q]
