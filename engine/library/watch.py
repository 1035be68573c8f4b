"""What would make compiled code and its module drift apart, as one value that calls compare.

Weights are bound in place, so writing into them is seen by compiled code. A tensor that is
replaced, a submodule or an attribute that is set anew, and a write into a constant are not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from vcc.engine.torch_shim.module_parts import own_buffers, own_children, own_parameters, writes_to

SLOT = "_vcc_slot"
"""Where a decorated module keeps its compiled form."""


def watched(module: nn.Module) -> tuple[object, ...]:
    """A value that changes when the module does not match its compiled form any more.

    Lists and dicts that are changed in place are not seen.
    """
    return tuple(part for one in module.modules() for part in _parts(one))


def _parts(module: nn.Module) -> Iterator[object]:
    for name, value in vars(module).items():
        if name != SLOT:
            yield id(value)
        if name.endswith("_hooks") and value:
            yield tuple(map(id, value.values()))
        if isinstance(value, torch.Tensor):
            yield writes_to(value)
    yield tuple(map(id, own_children(module)))
    for weight in own_parameters(module).values():
        yield None if weight is None else weight.data_ptr()
    for _, buffer, kept in own_buffers(module):
        if buffer is not None:
            yield (buffer.data_ptr(), 0 if kept else writes_to(buffer))
