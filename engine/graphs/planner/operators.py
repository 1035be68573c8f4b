"""Operators at which the graph is cut, and the loop's head and tail, as launches of own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcc.engine.graphs.planner.arithmetic import is_dense
from vcc.engine.graphs.planner.memory import Located
from vcc.engine.graphs.planner.refusal import refused
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.types import SegmentKind
from vcc.engine.ops.register import operator
from vcc.engine.ops.triton.registry import (
    BUILDERS,
    Facts,
    Launches,
    TensorLayout,
    advance_launches,
    launches,
    sample_launches,
)
from vcc.engine.torch_shim.nodes import argument_names

STRIDED: Mapping[str, frozenset[str]] = {
    "vcc::kv_write": frozenset({"k", "v"}),
    "vcc::paged_attention": frozenset({"q"}),
}
"""Arguments that an operator's kernels take as rows with a stride."""

NAMESPACE = "vcc::"


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator becomes, and the segment that it is."""

    kind: SegmentKind
    name: str
    made: Launches


def operator_of(call: Call, values: Mapping[str, Located], facts: Facts) -> Operator:
    """The launches of one call of an operator.

    Raises:
        CompileError: no kernel on CUDA, or sizes that its kernels do not take.
    """
    name = base_name(call.target)
    if call.returns or not name.startswith(NAMESPACE) or name[len(NAMESPACE) :] not in BUILDERS:
        raise refused("the step", name, "it has no kernel of its own on CUDA")
    literals = {
        argument: _layout(values[value]) if isinstance(value, str) else value[0]
        for argument, value in zip(argument_names(operator(call.target)), call.args, strict=True)
    }
    return Operator(SegmentKind.OP, name, launches(name[len(NAMESPACE) :], literals, facts))


def tensors_of(call: Call) -> dict[str, str]:
    """Values of a call by the operator's argument names."""
    names = argument_names(operator(call.target))
    pairs = zip(names, call.args, strict=True)
    return {argument: value for argument, value in pairs if isinstance(value, str)}


def base_name(target: str) -> str:
    """An operator's name without its overload."""
    return target.partition(".")[0]


def advance(facts: Facts) -> Operator:
    """The head of the device-side decode loop."""
    return Operator(SegmentKind.ADVANCE, "advance", advance_launches(facts))


def sample(facts: Facts) -> Operator:
    """The tail of a step: from logits to tokens."""
    return Operator(SegmentKind.SAMPLE, "sample", sample_launches(facts))


def _layout(located: Located) -> TensorLayout:
    geometry = located.geometry
    plain = is_dense(geometry.shape, geometry.stride)
    return TensorLayout(geometry.shape, () if plain else geometry.stride)
