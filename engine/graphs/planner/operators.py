"""Operators at which the graph is cut, and the loop's head and tail, as launches of own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.planner.arithmetic import is_dense
from vcc.engine.graphs.planner.memory import Located
from vcc.engine.graphs.planner.refusal import refused
from vcc.engine.graphs.program import Call
from vcc.engine.graphs.table.types import READ, WRITE, SegmentKind
from vcc.engine.ops.cuda.call import CudaCall, Tensor
from vcc.engine.ops.cuda.kernel import kernel_of
from vcc.engine.ops.cuda.table import BUILDERS as CSRC
from vcc.engine.ops.cuda.table import cuda_call
from vcc.engine.ops.register import operator
from vcc.engine.ops.triton.registry import (
    BUILDERS,
    Facts,
    Launches,
    OpLaunch,
    TensorLayout,
    advance_launches,
    launches,
    sample_launches,
)
from vcc.engine.torch_shim.nodes import absent_tensors, argument_names
from vcc.engine.torch_shim.triton_build import CompiledKernel

STRIDED: Mapping[str, frozenset[str]] = {
    "vcc::kv_write": frozenset({"k", "v"}),
    "vcc::paged_attention": frozenset({"q"}),
    "vcc::paged_attention_quant": frozenset({"q"}),
    "vcc::rope_kv_write": frozenset({"q", "k", "v"}),
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
    op = name.removeprefix(NAMESPACE)
    known = op in BUILDERS or op in CSRC
    if call.returns or not name.startswith(NAMESPACE) or not known:
        raise refused("the step", name, "it has no kernel of its own on CUDA")
    if op not in BUILDERS or op in facts.csrc & CSRC.keys():
        return Operator(SegmentKind.OP, name, _csrc(op, call, values, facts))
    literals = {
        argument: _layout(values[value]) if isinstance(value, str) else value[0]
        for argument, value in _pairs(call)
    }
    return Operator(SegmentKind.OP, name, launches(op, literals, facts))


def _csrc(op: str, call: Call, values: Mapping[str, Located], facts: Facts) -> Launches:
    """The launch of an operator by its kernel of `csrc/kernels`."""
    pairs = _pairs(call)
    found = {n: values[value].geometry for n, value in pairs if isinstance(value, str)}
    tensors = {n: Tensor(one.dtype, one.shape, one.stride) for n, one in found.items()}
    numbers = {n: v[0] for n, v in pairs if not isinstance(v, str) and v[0] is not None}
    made = cuda_call(op, tensors, numbers)
    return Launches((op_launch(made, kernel_of(made, facts.profile.target)),))


def op_launch(call: CudaCall, kernel: CompiledKernel) -> OpLaunch:
    """A launch of csrc as an operator's."""
    pointers = [one for one in call.parameters if one.kind.startswith("*")]
    return OpLaunch(
        kernel,
        (call.blocks, 1, 1),
        {one.name: one.value for one in call.parameters},
        {one.name: WRITE if one.written else READ for one in pointers},
    )


def tensors_of(call: Call) -> dict[str, str]:
    """Values of a call by the operator's argument names."""
    return {argument: value for argument, value in _pairs(call) if isinstance(value, str)}


def _pairs(call: Call) -> list[tuple[str, Any]]:
    """Arguments by the operator's names; optional tensors at the end may not be there."""
    target = operator(call.target)
    names = argument_names(target)
    missing = len(names) - len(call.args)
    if missing != absent_tensors(target, [*call.args, *[None] * missing][: len(names)]):
        raise CompileError(
            f"{call.target} is called with {len(call.args)} arguments", f"it has {len(names)}"
        )
    return list(zip(names, call.args, strict=False))


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
    return TensorLayout(geometry.shape, () if plain else geometry.stride, geometry.dtype)
