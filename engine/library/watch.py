"""Watch: whether a module is still what its compiled form was made for, asked by every call.

Weights are bound in place, so writing into them is seen by compiled code. A tensor that is
replaced, a submodule, a hook or an attribute that is set anew, and a write into a constant are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import nn

from vcc.engine.torch_shim.module_parts import own_buffers, own_parameters, own_tables, writes_to

SLOT = "_vcc_slot"
"""Where a decorated module keeps its compiled form."""


class Watch:
    """Remembers a module as it is now.

    Values are compared by identity and kept, so that no other one can have the place of one that
    is gone. Lists, dicts and objects in attributes that are changed in place are not seen.
    """

    def __init__(self, module: nn.Module) -> None:
        modules = tuple(module.modules())
        self._tables: list[Mapping[str, Any]] = [
            table for one in modules for table in (vars(one), *own_tables(one))
        ]
        self._weights = [t for one in modules for t in _weights(one)]
        self._constants = [t for one in modules for t in _constants(one)]
        self._values = tuple(self._now())
        self._places, self._writes = self._measured()

    def holds(self) -> bool:
        """Whether nothing of it has changed since."""
        now = tuple(self._now())
        if len(now) != len(self._values) or not all(map(is_, now, self._values)):
            return False
        return (self._places, self._writes) == self._measured()

    def _now(self) -> Iterator[Any]:
        return chain.from_iterable(table.values() for table in self._tables)

    def _measured(self) -> tuple[list[int], list[int]]:
        return [one.data_ptr() for one in self._weights], [writes_to(t) for t in self._constants]


def _weights(module: nn.Module) -> Iterator[torch.Tensor]:
    kept = (one for _, one, kept in own_buffers(module) if kept)
    return (one for one in chain(own_parameters(module).values(), kept) if one is not None)


def _constants(module: nn.Module) -> Iterator[torch.Tensor]:
    """What a trace makes constants of: buffers outside the state dict, tensors in attributes."""
    left_out = (one for _, one, kept in own_buffers(module) if not kept)
    held = chain(left_out, vars(module).values())
    return (one for one in held if isinstance(one, torch.Tensor))
