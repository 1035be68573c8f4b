"""State that a trace would lose is refused, state that is written in place is followed."""

from __future__ import annotations

import pytest
import torch
from support.toys import rows, traced

from vcc.cache.errors import CompileError


def test_a_buffer_that_is_assigned_anew_is_refused_by_name() -> None:
    def forward(self, x):
        self.count = self.count + 1
        return x * self.count

    with pytest.raises(CompileError, match="assigns count anew") as error:
        traced(forward, {"x": rows()}, count=torch.zeros(1))
    assert "self.count.copy_(" in error.value.hint


def test_a_buffer_that_is_written_in_place_is_traced() -> None:
    def forward(self, x):
        self.count.add_(1)
        return x * self.count

    graph = traced(forward, {"x": rows()}, count=torch.zeros(1)).graph
    assert "add_" in str(graph.graph)
