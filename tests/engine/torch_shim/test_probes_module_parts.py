"""Probes: a module's parts and a tensor's count of writes, as the library compares them."""

from __future__ import annotations

import torch
from torch import nn

from vcc.engine.torch_shim import module_parts


def taken_apart() -> nn.Module:
    module = nn.Linear(2, 3, bias=False)
    module.register_buffer("kept", torch.ones(1))
    module.register_buffer("left", torch.ones(1), persistent=False)
    module.inner = nn.Identity()
    return module


def test_module_parts_own_parameters() -> None:
    found = module_parts.own_parameters(taken_apart())
    assert set(found) == {"weight", "bias"}
    assert found["bias"] is None


def test_module_parts_own_buffers() -> None:
    found = [(name, kept) for name, _, kept in module_parts.own_buffers(taken_apart())]
    assert found == [("kept", True), ("left", False)]


def test_module_parts_own_tables() -> None:
    module = taken_apart()
    parameters, _, children, *hooks = module_parts.own_tables(module)
    assert (list(parameters), list(children)) == (["weight", "bias"], ["inner"])
    module.register_forward_hook(print)
    assert [value for hook in hooks for value in hook.values()] == [print]
    assert vars(module).keys() >= module_parts.HIDDEN


def test_module_parts_writes_to() -> None:
    tensor = torch.ones(2)
    before = module_parts.writes_to(tensor)
    tensor.view(1, 2).add_(1)
    assert module_parts.writes_to(tensor) > before
    with torch.inference_mode():
        assert module_parts.writes_to(torch.ones(2)) == 0
