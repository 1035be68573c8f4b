"""A trace that fails names the line of the model, and what is missing."""

from __future__ import annotations

import pytest
import torch
from support.toys import rows, traced

from vcc.cache.errors import CompileError


def test_a_graph_break_names_its_line() -> None:
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(CompileError, match=r"test_failure\.py:\d+: if x\.sum\(\) > 0:") as error:
        traced(forward, {"x": rows()})
    assert "TORCH_LOGS" not in error.value.why
    assert "data-dependent" in error.value.hint


def test_a_number_that_depends_on_data_names_its_line() -> None:
    def forward(self, x):
        count = int(x.sum().item())
        return x[:count]

    with pytest.raises(CompileError, match=r"test_failure\.py:\d+: "):
        traced(forward, {"x": rows()})


def test_an_operator_without_a_fake_is_named_with_its_remedy() -> None:
    library = torch.library.Library("nofake", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")

    def forward(self, x):
        return torch.ops.nofake.twice(x)

    with pytest.raises(CompileError, match="nofake::twice has no fake") as error:
        traced(forward, {"x": rows()})
    assert error.value.hint == 'register one: @torch.library.register_fake("nofake::twice")'
    assert "test_failure.py" in error.value.why
