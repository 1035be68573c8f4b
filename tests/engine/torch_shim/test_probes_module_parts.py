"""A module's parts and a tensor's count of writes, as the library compares them."""

from __future__ import annotations

import torch
from torch import nn

from vcc.engine.torch_shim.module_parts import (
    HIDDEN,
    own_buffers,
    own_parameters,
    own_tables,
    writes_to,
)


def test_a_module_is_taken_apart_by_name() -> None:
    module = nn.Linear(2, 3, bias=False)
    module.register_buffer("kept", torch.ones(1))
    module.register_buffer("left", torch.ones(1), persistent=False)
    module.inner = nn.Identity()
    assert set(own_parameters(module)) == {"weight", "bias"}
    assert own_parameters(module)["bias"] is None
    assert [(name, kept) for name, _, kept in own_buffers(module)] == [
        ("kept", True),
        ("left", False),
    ]
    parameters, _, children, *hooks = own_tables(module)
    assert (list(parameters), list(children)) == (["weight", "bias"], ["inner"])
    module.register_forward_hook(print)
    assert [value for hook in hooks for value in hook.values()] == [print]
    assert vars(module).keys() >= HIDDEN


def test_writes_are_counted_except_into_inference_tensors() -> None:
    tensor = torch.ones(2)
    before = writes_to(tensor)
    tensor.view(1, 2).add_(1)
    assert writes_to(tensor) > before
    with torch.inference_mode():
        assert writes_to(torch.ones(2)) == 0
