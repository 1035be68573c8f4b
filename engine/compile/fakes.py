"""Operators of others held against their fakes, by which code is compiled.

Torch believes what a fake says of shape, type and strides. Where the kernel gives something else,
compiled code reads past its result or in another order, and nothing says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from vcc.cache.errors import CompileError
from vcc.engine.torch_shim.fake_calls import fake_results
from vcc.engine.torch_shim.nodes import foreign_name


def check_fakes(graph: GraphModule, arguments: Sequence[torch.Tensor]) -> None:
    """Run a graph eagerly, and compare what operators of others give with what their fakes say.

    Args:
        graph: of a piece; what it writes in place is written to copies.
        arguments: of its placeholders. Where the model refuses them, nothing is compared.

    Raises:
        CompileError: a result has another shape, type or layout than its fake says.
    """
    if not any(foreign_name(node.target) for node in graph.graph.nodes):
        return
    held = _Held(graph)
    try:
        held.run(*(one.clone() for one in arguments))
    except Exception:
        if not held.found:
            return  # a kernel may want other values than drawn ones, and who draws says so
    if held.found:
        raise CompileError(*held.found[0])


class _Held(Interpreter):
    """Runs a graph and notes results that are not what was said of them."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.found: list[tuple[str, str, str]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """As the base class; a call of somebody's operator is compared."""
        given = super().call_function(target, args, kwargs)
        if name := foreign_name(target):
            self._compare(name, fake_results(target, args, kwargs), given)
        return given

    def _compare(self, name: str, said: Sequence[torch.Tensor], given: Any) -> None:
        results = given if isinstance(given, (list, tuple)) else (given,)
        tensors = [one for one in results if isinstance(one, torch.Tensor)]
        for index, (fake, real) in enumerate(zip(said, tensors, strict=False)):
            if not _alike(fake, real):
                self.found.append(
                    (
                        f"the operator {name} gives something else than its fake says",
                        f"result {index} is {_told(real)}, by its fake {_told(fake)}",
                        "mend the fake (@torch.library.register_fake) or the kernel; "
                        "torch.library.opcheck compares them",
                    )
                )


def _alike(fake: torch.Tensor, real: torch.Tensor) -> bool:
    """Equal type, sizes and strides, but for strides of dimensions of one element or none.

    Where a size depends on data, sizes and strides are left alone.
    """
    if fake.dtype is not real.dtype or fake.dim() != real.dim():
        return False
    if not all(isinstance(size, int) for size in fake.shape):
        return True
    strides = zip(fake.stride(), real.stride(), real.shape, strict=True)
    return fake.shape == real.shape and all(a == b for a, b, size in strides if size > 1)


def _told(value: torch.Tensor) -> str:
    """`float32 [8, 4] with strides [4, 1]`."""
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} {list(value.shape)} with strides {list(value.stride())}"
