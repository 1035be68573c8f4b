"""Weights of other dtypes: told when they are converted, refused where that would lose a part."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vcc.cache.errors import ModelError
from vcc.engine.models.converted import conversion_note


def test_weights_that_are_converted_are_told() -> None:
    assert conversion_note(nn.Linear(2, 2), torch.bfloat16) == ""
    assert conversion_note(nn.Linear(2, 2).half(), torch.float16) == ""
    told = conversion_note(nn.Linear(2, 2).half(), torch.float32)
    assert told == "weights of float16 are converted to float32; --dtype names another"


def test_a_complex_weight_is_refused() -> None:
    module = nn.Module()
    module.register_buffer("turns", torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ModelError, match="turns of the module is complex") as caught:
        conversion_note(module, torch.float32)
    assert "imaginary" in caught.value.why
    assert caught.value.hint
