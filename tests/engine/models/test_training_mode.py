"""A module that a factory gives in training mode is run in evaluation mode, and that is told."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vcc.engine.models.shapes import InputShape
from vcc.engine.models.training_mode import MOST_NAMED, training_note
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import trace


class Switches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x if self.training else x


class Inherits(Switches):
    pass


def test_parts_that_evaluation_mode_changes_are_named() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.LayerNorm(4))
    told = training_note(module)
    assert "1 (Dropout), 2 (BatchNorm1d);" in told
    assert "LayerNorm" not in told


def test_a_class_of_the_users_own_that_reads_the_mode_is_named() -> None:
    assert "the module (Switches)" in training_note(Switches())
    assert "0 (Inherits)" in training_note(nn.Sequential(Inherits()))


def test_nothing_is_told_where_the_mode_changes_nothing() -> None:
    assert training_note(nn.Sequential(nn.Linear(4, 4), nn.ReLU())) == ""
    assert training_note(nn.Sequential(nn.Dropout(0.5)).eval()) == ""


def test_one_part_that_stayed_in_training_mode_is_found() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)).eval()
    module[1].train()
    assert "other in 1 (Dropout);" in training_note(module)


def test_a_long_list_ends_with_a_count() -> None:
    told = training_note(nn.Sequential(*(nn.Dropout(0.5) for _ in range(MOST_NAMED + 3))))
    assert "and 3 more;" in told


def test_a_trace_computes_evaluation_mode_and_notes_it() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), Switches())
    shapes = (InputShape.parse("input=1-8x4"),)
    found = trace(module_trace(module, shapes, torch.float32))
    assert found.notes == (training_note(module.train()),)
    weights = [module.get_parameter(f"0.{name}") for name in ("weight", "bias")]
    x = torch.randn(5, 4)
    (out,) = found.graph(*weights, x)
    torch.testing.assert_close(out, module.eval()(x))
    assert trace(module_trace(module, shapes, torch.float32)).notes == ()
