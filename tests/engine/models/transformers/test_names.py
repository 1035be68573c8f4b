"""Weights that a checkpoint stores as one tensor: each is rows of it, as transformers loads it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from vcc.cache.errors import ModelError
from vcc.engine.models.expressions import Rows
from vcc.engine.models.tensor_info import TensorInfo
from vcc.engine.models.transformers.model import make_model
from vcc.engine.models.transformers.names import bind, saved_shapes

pytest.importorskip("transformers", reason="transformers is not installed")

CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 160,
}
FUSED = 'tensor("encoder.layers.1.attn.Wqkv.weight")'


def nomic() -> Any:
    return make_model("NomicBertModel", CONFIG, torch.float32, attn_implementation="eager")


def test_query_key_and_value_are_rows_of_what_is_stored() -> None:
    bindings = bind(nomic(), None)
    found = [str(bindings[f"layers.1.self_attn.{one}_proj.weight"]) for one in "qkv"]
    assert found == [f"rows({FUSED}, {at}:{at + 64})" for at in (0, 64, 128)]


def test_all_other_weights_are_tensors_as_they_are() -> None:
    bindings = bind(nomic(), None)
    rows = [name for name, one in bindings.items() if isinstance(one, Rows)]
    assert len(rows) == 6
    assert all(re.fullmatch(r"layers\.[01]\.self_attn\.[qkv]_proj\.weight", n) for n in rows)


@pytest.mark.parametrize("height", [64, 190, 191, 193, 384])
def test_a_tensor_of_another_height_is_refused(height: int) -> None:
    model = nomic()
    stored = {name: TensorInfo("float32", shape) for name, shape in saved_shapes(model).items()}
    fused = next(name for name in stored if name.endswith("1.attn.Wqkv.weight"))
    stored[fused] = TensorInfo("float32", (height, 64))
    with pytest.raises(ModelError) as raised:
        bind(model, stored)
    assert re.search(r"layers\.1\.self_attn\.[qv]_proj\.weight is", str(raised.value.why))
