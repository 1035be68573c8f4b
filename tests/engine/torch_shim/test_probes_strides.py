"""Probes of layouts that Inductor keeps."""

from __future__ import annotations

import torch

from vcc.engine.torch_shim import strides


def test_strides_laying() -> None:
    """An operator: graphs name it, and its fake value has the strides."""
    assert isinstance(strides.laying(), torch._ops.OpOverload)
    found = strides.laid(torch.empty(2, 3, 4, device="meta"), [12, 1, 3])
    assert found.stride() == (12, 1, 3)


def test_strides_laid() -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(strides.laid(x, [12, 1, 3]), x)


def test_strides_dense() -> None:
    x = torch.randn(4, 6).t()[::2]
    assert torch.equal(strides.dense(x), x)
    assert strides.dense(x).is_contiguous()


def test_inductor_knows_the_operator() -> None:
    """What its code does then is held by tests of the planner's products."""
    from torch._inductor.lowering import lowerings

    assert strides.laying() in lowerings


def test_strides_strides_in() -> None:
    assert strides.strides_in((torch.ones(2, 3), 1, [torch.ones(4)])) == [(3, 1), (1,)]
    assert strides.strides_in(None) == []
