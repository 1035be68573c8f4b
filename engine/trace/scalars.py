"""Numbers in a model stay numbers: a trace makes a constant on the CPU of each, for any target.

`x[0] = 5` becomes a copy of a tensor without dimensions, which lies on the CPU wherever x lies, and
so does `torch.tensor(5)` before it is moved. No node table can read it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from vcc.engine.types import Placeholder

aten = torch.ops.aten
WRITES = (aten.fill_.Tensor, aten.copy_.default)
"""What a trace makes of such a write; the number is the second argument."""


def keep_numbers(
    graph: GraphModule, placeholders: Iterable[Placeholder], lifted: Mapping[str, torch.Tensor]
) -> None:
    """Write numbers where constants of one element are only written into tensors, in place.

    Args:
        graph: as traced; its placeholders have the names of `placeholders`.
        placeholders: its inputs.
        lifted: the data of constants that the trace made itself, by target.
    """
    nodes = {node.name: node for node in graph.graph.find_nodes(op="placeholder")}
    for one in placeholders:
        data = lifted.get(one.target) if one.role == "constant" else None
        if data is not None and data.dim() == 0:
            _spread(graph, nodes[one.name], data)
    graph.recompile()


def _spread(graph: GraphModule, constant: Node, data: torch.Tensor) -> None:
    for fresh in list(constant.users):
        if fresh.target is not aten.lift_fresh_copy.default:
            continue
        for write in list(fresh.users):
            if write.target in WRITES and write.args[1] is fresh:
                write.target = aten.fill_.Scalar
                write.args, write.kwargs = (write.args[0], data.item()), {}
        if not fresh.users:
            graph.graph.erase_node(fresh)


class FilledNumbers(TorchFunctionMode):
    """Inside, `torch.tensor` of a number is `torch.full`, which makes it where it is to lie.

    For a target that need not be there: a constant cannot be moved to it while tracing.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if function is torch.tensor and _is_number(args, given):
            return torch.full((), args[0], **given)
        return function(*args, **given)


def _is_number(args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    plain = len(args) == 1 and type(args[0]) in (bool, int, float)
    there = given.get("device") is None or torch.device(given["device"]).type != "cpu"
    return plain and there and given.keys() <= {"dtype", "device"}
