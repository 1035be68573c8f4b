"""What AOTInductor makes of Inductor's own partition: nothing. A torch that does fails here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.generated import source_of
from support.toys import rows, traced
from torch import Tensor
from torch._inductor.scheduler import Scheduler

from vcc.engine.partition.split import split

SWITCH = {"graph_partition": True, "custom_should_partition_ops": ["toy::attend"]}


def model(m: Any, x: Tensor) -> Tensor:
    y = (x * 2).relu()
    out = torch.empty_like(y)
    torch.ops.toy.attend(y, y, out)
    return (out + x).tanh()


def test_aotinductor_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/decisions/0017: the C++ is the same with the switch, and nobody asks where to cut."""
    asked: list[Scheduler] = []
    monkeypatch.setattr(Scheduler, "graph_partition", lambda self: asked.append(self))
    (piece,) = split(traced(model, {"x": rows()}, {"x": {0: "T"}}), (), ()).unique
    assert source_of(piece, SWITCH) == source_of(piece)
    assert asked == []
