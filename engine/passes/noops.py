"""No-op elimination: views, slices and casts that change nothing, and trace-time asserts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from vcc.engine.passes.base import Outcome, PassContext, builtin
from vcc.engine.passes.memory import RELABELS
from vcc.engine.passes.rewrite import bytes_of
from vcc.engine.torch_shim.fake import expression
from vcc.engine.torch_shim.nodes import StorageKey, mutated_arguments, storage_key
from vcc.engine.types import Saved

aten = torch.ops.aten

ASSERTS = frozenset({aten._assert_tensor_metadata.default})
"""Checks of what tracing itself has fixed; the step boundary checks inputs."""

COPY_FLAG: Mapping[Any, int] = {aten.to.dtype: 3, aten.to.device: 4, aten.to.other: 3}
"""Casts, and where the argument stands that asks for a copy in any case."""

UNITS = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
PADS = (aten.pad.default, aten.constant_pad_nd.default)
COPIES = frozenset({*UNITS, *PADS})
"""These make a tensor of their own; the others give back the one they got."""

RESHAPES = frozenset({aten.view.default, aten.reshape.default, aten._unsafe_view.default})


def eliminate_noops(graph: GraphModule, context: PassContext) -> Outcome:
    """Remove what has no effect; a value that is written in place is left alone."""
    written = _written(graph.graph)
    memories = {storage_key(_value(node)) for node in written}
    matches, refused, saved = 0, [], Saved()
    for node in list(graph.graph.nodes):
        if node.target in ASSERTS:
            graph.graph.erase_node(node)
            matches += 1
            continue
        base = _replacement(node)
        if base is None:
            continue
        if node in written or base in written or _copies_written(node, base, memories):
            refused.append(f"{node.name}: its memory is written in place")
            continue
        if node.target in COPIES:
            saved += Saved(2 * bytes_of(node), 1)
        matches += _rewire(node, base)
    graph.graph.eliminate_dead_code(is_impure_node=_keep)
    return Outcome(matches, tuple(refused), saved)


def _written(graph: Graph) -> set[Node]:
    return {
        argument
        for node in graph.nodes
        if node.target not in RELABELS
        for argument in mutated_arguments(node)
    }


def _copies_written(node: Node, base: Node, memories: set[StorageKey]) -> bool:
    """Whether the node is a copy of its base and one of the two memories is written in place."""
    own, other = storage_key(_value(node)), storage_key(_value(base))
    return own != other and (own in memories or other in memories)


def _keep(node: Node) -> bool:
    """Dead code is another pass's business: only the reshapes passed over here may go."""
    return node.target not in RESHAPES


def _rewire(node: Node, base: Node) -> int:
    """Put `base` in place of a no-op, or of the source of a chained reshape."""
    if node.target in RESHAPES and not _same_shape(node, base):
        node.update_arg(0, base)
        return 1
    node.replace_all_uses_with(base)
    node.graph.erase_node(node)
    return 1


def _replacement(node: Node) -> Node | None:
    rule = RULES.get(node.target) if node.op == "call_function" else None
    source = node.args[0] if node.args else None
    if rule is None or not isinstance(source, Node):
        return None
    return rule(node, source)


def _reshape(node: Node, source: Node) -> Node | None:
    base = source
    while base.target in RESHAPES and isinstance(base.args[0], Node):
        base = base.args[0]
    if _same_shape(node, base):
        return base
    return base if base is not source else None


def _slice(node: Node, source: Node) -> Node | None:
    return source if _same_shape(node, source) else None


def _same_meta(node: Node, source: Node) -> Node | None:
    same = _same_shape(node, source) and _value(node).dtype == _value(source).dtype
    return source if same and _value(node).device == _value(source).device else None


def _cast(node: Node, source: Node) -> Node | None:
    place = COPY_FLAG.get(node.target)
    given = node.args[place] if place is not None and place < len(node.args) else False
    return None if node.kwargs.get("copy", given) else _dense(node, source)


def _dense(node: Node, source: Node) -> Node | None:
    """Same type and place, and no memory format that would change strides."""
    return _same_meta(node, source) if _same_strides(node, source) else None


def _unit(node: Node, source: Node) -> Node | None:
    """A product or quotient by one; a sum with zero is none, as it turns -0.0 into 0.0."""
    one = node.args[1]
    plain = isinstance(one, (int, float)) and not isinstance(one, bool) and one == 1
    return _dense(node, source) if plain else None


def _pad(node: Node, source: Node) -> Node | None:
    sides = node.args[1]
    empty = isinstance(sides, (list, tuple)) and all(type(one) is int and one == 0 for one in sides)
    return _dense(node, source) if empty else None


def _contiguous(node: Node, source: Node) -> Node | None:
    formats = [*node.args[1:], *node.kwargs.values()]
    dense = formats in ([], [torch.contiguous_format])
    return source if dense and _same_strides(node, source) else None


def _dropout(node: Node, source: Node) -> Node | None:
    p, train = node.args[1:3]
    return source if p == 0 or train is False else None


RULES: Mapping[Any, Callable[[Node, Node], Node | None]] = {
    **dict.fromkeys(RESHAPES, _reshape),
    aten.slice.Tensor: _slice,
    **dict.fromkeys(COPY_FLAG, _cast),
    aten.to.dtype_layout: _cast,
    **dict.fromkeys(UNITS, _unit),
    **dict.fromkeys(PADS, _pad),
    aten.contiguous.default: _contiguous,
    aten.dropout.default: _dropout,
    aten.expand.default: _same_meta,
    aten.alias.default: _same_meta,
    aten.detach.default: _same_meta,
    aten.detach_.default: _same_meta,
}


def _value(node: Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def _same_shape(left: Node, right: Node) -> bool:
    # Compared as expressions: asking whether two symbolic sizes are equal would add a guard.
    a, b = [_value(n).shape for n in (left, right)]
    return len(a) == len(b) and all(
        expression(x) == expression(y) for x, y in zip(a, b, strict=True)
    )


def _same_strides(left: Node, right: Node) -> bool:
    a, b = [_value(n).stride() for n in (left, right)]
    return all(expression(x) == expression(y) for x, y in zip(a, b, strict=True))


ELIMINATE_NOOPS = builtin("eliminate_noops", eliminate_noops)
