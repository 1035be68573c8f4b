"""Weights of other dtypes: told when they are converted, refused where that would lose a part."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vcc.cache.errors import ModelError
from vcc.engine.models.converted import conversion_note, converted


def test_weights_that_are_converted_are_told() -> None:
    assert conversion_note(nn.Linear(2, 2), torch.bfloat16) == ""
    assert conversion_note(nn.Linear(2, 2).half(), torch.float16) == ""
    told = conversion_note(nn.Linear(2, 2).half(), torch.float32)
    assert told == "weights of float16 are converted to float32; --dtype names another"


def test_the_other_weights_are_converted() -> None:
    module = nn.BatchNorm1d(2).half()
    assert converted(module, torch.bfloat16) is module
    assert module.weight.dtype is torch.bfloat16
    assert module.num_batches_tracked.dtype is torch.int64


def test_a_complex_weight_is_refused() -> None:
    module = nn.Module()
    module.register_buffer("turns", torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ModelError, match="turns of the module is complex") as caught:
        converted(module, torch.float32)
    assert "imaginary" in caught.value.why
    assert caught.value.hint
