"""One pass on a small graph: what is left of it, and whether results are equal on several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from support.toys import traced
from vcc.engine.config.types import CompilationConfig, PassConfig
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.base import Pass, PassContext
from vcc.engine.passes.noops import ELIMINATE_NOOPS
from vcc.engine.passes.prove import Proof, prove
from vcc.engine.torch_shim.nodes import overload_name
from vcc.engine.types import Traced

load_ops()

Model = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Fused:
    """What a pass did to a graph.

    Attributes:
        calls: operators that are left, in order.
        proof: results before and after.
    """

    calls: tuple[str, ...]
    proof: Proof

    @property
    def fused(self) -> list[str]:
        """The operators of vcc that are left."""
        return [name.removeprefix("vcc::").partition(".")[0] for name in self.of("vcc")]

    def of(self, namespace: str) -> list[str]:
        """The operators of a namespace that are left."""
        return [name for name in self.calls if name.startswith(f"{namespace}::")]


def switched_on(one: Pass, context: PassContext | None = None) -> PassContext:
    """A context in which a pass was asked for."""
    known = context or PassContext(CompilationConfig())
    config = replace(known.config, pass_config=PassConfig(**{one.name: True}))
    return replace(known, config=config)


def fused(
    one: Pass,
    model: Model,
    arguments: dict[str, Tensor],
    *,
    before: Sequence[Pass] = (),
    context: PassContext | None = None,
    **parts: Any,
) -> Fused:
    """Trace `model(module, **arguments)` with rows T, run passes before this one, and prove it."""
    dynamic = {name: {0: "T"} for name, given in arguments.items() if given.shape[0] == 6}
    graph = traced(model, arguments, dynamic, **parts)
    return on(graph, one, before=before, context=context)


def on(
    graph: Traced, one: Pass, *, before: Sequence[Pass] = (), context: PassContext | None = None
) -> Fused:
    """Run passes before this one on a trace, and prove it."""
    for other in (ELIMINATE_NOOPS, *before):
        apply(graph, [other], switched_on(other, context))
    proof = prove(graph, one, switched_on(one, context))
    return Fused(operators(graph), proof)


def operators(graph: Traced) -> tuple[str, ...]:
    """The operators of a graph, in order."""
    names = (overload_name(node.target) for node in graph.graph.graph.nodes)
    return tuple(name for name in names if name)


def by_name(name: str) -> Pass:
    """A pass of ours."""
    return next(one for one in PASSES if one.name == name)


def a_weight(width: int, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    """A weight around one."""
    data = torch.linspace(0.7, 1.3, width).to(dtype)
    return torch.nn.Parameter(data, requires_grad=False)
