"""Traces of transformers' own models as plain modules, small and with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcc.engine.models.shapes import InputShape
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import trace
from vcc.engine.types import Traced

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 64,
}


class Hidden(nn.Module):
    """A transformers model as a function of one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """x int32 [B, S] -> hidden states."""
        found = self.model(input_ids=x.long(), use_cache=False, return_dict=True)
        return torch.as_tensor(found[0])


def of_transformers(name: str, **fields: Any) -> Traced:
    """The model `<name>Model`; `fields` are of its config, beside `SIZES`."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **fields)
    module = Hidden(getattr(transformers, f"{name}Model")(config)).eval()
    return trace(module_trace(module, (InputShape.parse("x=1-4x8:int32"),), torch.float32))
