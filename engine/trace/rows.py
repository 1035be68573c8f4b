"""Rows of a step stay apart: only attention may look from one token at another.

A batch holds tokens of several sequences, and the attention operator is told whose they are. A
model that was written for one sequence may look elsewhere too: it shifts tokens, counts them,
convolves them, or numbers them itself. On such a batch it would compute something else without a
word, so its graph is looked at and refused by the operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from vcc.cache.errors import ModelError
from vcc.engine.torch_shim.nodes import (
    argument_names,
    call_arguments,
    mutated_arguments,
    overload_name,
)

NAMESPACE = "vcc::"

ALONG = frozenset(
    {
        *("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all"),
        *("softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "logcumsumexp"),
        *("cumsum", "cumprod", "cummax", "cummin", "diff", "var", "std", "norm", "median"),
        *("linalg_vector_norm", "sort", "argsort", "topk", "kthvalue", "roll", "flip", "cat"),
        *("select", "unbind", "unfold", "gather", "scatter", "scatter_add", "index_add", "split"),
        *(
            "chunk",
            "narrow",
            "repeat_interleave",
            "tensor_split",
            "glu",
            "renorm",
            "stft",
            "fft_fft",
        ),
    }
)
"""Operators that mix what lies along their dimension, or move it."""

WHOLE = frozenset({"sum", "mean", "prod", "max", "min", "any", "all", "norm", "std", "var"})
"""Operators that mix everything where they are told no dimension."""

CONVOLUTIONS = ("conv", "_conv", "max_pool", "avg_pool", "adaptive_", "constant_pad_nd", "pad")
NUMBERS = frozenset({"arange", "linspace", "tril", "triu", "tril_indices", "triu_indices"})
ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "rsub", "full", "scalar_tensor"})
PRODUCTS = frozenset({"matmul", "mm", "bmm", "addmm", "baddbmm", "linear"})


def refuse_mixed_rows(graph: Graph, positions: str) -> None:
    """Look at everything that results depend on.

    Args:
        graph: of a step, whose sizes that vary are rows.
        positions: the input that says where tokens are in their sequences.

    Raises:
        ModelError: rows meet outside of attention, or the model numbers tokens itself.
    """
    live = _live(graph)
    for node in graph.nodes:
        if node in live and node.op == "call_function":
            for why in _mixes(node):
                raise _refused(node, why)
    given = next(n for n in graph.nodes if n.op == "placeholder" and n.name == positions)
    if given not in live:
        raise ModelError(
            "the model does not ask where its tokens are",
            "nothing depends on their positions, so it numbers them itself or knows no order",
            "only models of transformers that take position_ids can be served in steps",
        )


def _live(graph: Graph) -> set[Node]:
    """What results and writes depend on."""
    roots = [n for n in graph.nodes if n.op == "output" or (n.op == "call_function" and _writes(n))]
    live, waiting = set[Node](), list(roots)
    while waiting:
        node = waiting.pop()
        if node not in live:
            live.add(node)
            waiting.extend(node.all_input_nodes)
    return live


def _writes(node: Node) -> bool:
    return bool(mutated_arguments(node))


def _mixes(node: Node) -> Iterator[str]:
    """What a call does to rows that it may not."""
    name = overload_name(node.target)
    if name is None or name.startswith(NAMESPACE):
        return
    op, _, form = name.partition("::")[2].partition(".")
    op = "maximum" if form == "other" else op.rstrip("_")  # max.other and min.other take two
    x = _value(node.args[0]) if node.args else None
    if op in ALONG and (dims := _dims(node)) and x is not None:
        if any(_varies(x.shape[dim]) for dim in dims if -x.dim() <= dim < x.dim()):
            yield "it works along the tokens"
    elif op in WHOLE and not _dims(node) and x is not None and any(map(_varies, x.shape)):
        yield "it takes all tokens together"
    if op.startswith(CONVOLUTIONS) and x is not None and any(map(_varies, x.shape[2:])):
        yield "it takes neighbours together"
    if op == "slice" and x is not None and _cuts(node, x):
        yield "it takes some of the tokens"
    if op in PRODUCTS and x is not None and x.dim() and _varies(x.shape[-1]):
        yield "it sums over the tokens"
    if op == "einsum" and _sums_rows(node):
        yield "it sums over the tokens"
    if op in NUMBERS and any(_varies(_number(one)) for one in node.args):
        yield "it numbers the tokens itself"
    if op in ARITHMETIC and any(isinstance(one, torch.SymInt) for one in _numbers(node)):
        yield "it computes with the number of tokens"


def _dims(node: Node) -> list[int]:
    """The dimensions that a call is about; none where it is about all."""
    names = argument_names(node.target)
    label = next((one for one in ("dim", "dims") if one in names), None)
    given = None if label is None else call_arguments(node)[names.index(label)]
    return [one for one in _listed(given) if isinstance(one, int)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _cuts(node: Node, x: torch.Tensor) -> bool:
    _, dim, start, end, step = call_arguments(node)
    size = x.shape[dim]
    if not _varies(size):
        return False
    last = _number(end)
    whole = last is None or (isinstance(last, int) and last >= 2**31) or str(last) == str(size)
    return start not in (None, 0) or not whole or step != 1


def _sums_rows(node: Node) -> bool:
    equation, operands = str(node.args[0]).replace(" ", ""), _listed(node.args[1])
    inputs, _, output = equation.partition("->")
    for labels, operand in zip(inputs.split(","), operands, strict=False):
        value = _value(operand)
        sizes = () if value is None or "." in labels else value.shape
        if any(_varies(n) and c not in output for c, n in zip(labels, sizes, strict=False)):
            return True
    return False


def _numbers(node: Node) -> list[Any]:
    """The arguments of a call that are numbers; sizes of a new tensor are none."""
    sized = overload_name(node.target) in ("aten::full",)
    return [_number(one) for one in (node.args[1:] if sized else node.args)]


def _number(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, Node) else value


def _value(value: Any) -> torch.Tensor | None:
    if isinstance(value, (list, tuple)) and value:
        return _value(value[0])
    found = value.meta.get("val") if isinstance(value, Node) else None
    return found if isinstance(found, torch.Tensor) else None


def _varies(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _refused(node: Node, why: str) -> ModelError:
    trace = [line.strip() for line in (node.stack_trace or "").splitlines() if "File" in line]
    place = trace[-1] if trace else ""
    return ModelError(
        f"{overload_name(node.target)} lets tokens of several sequences meet",
        f"{why}{f', at {place}' if place else ''}; a step holds tokens of several sequences, and"
        " only attention may look from one at another",
        "models with state of their own between tokens cannot be served in steps",
    )
