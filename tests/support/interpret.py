"""A step program run by the book: eager pieces, fresh poisoned buffers, no binder, no packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Interpreter

from vcc.engine.graphs.dtypes import DTYPES
from vcc.engine.graphs.expr import evaluate_all
from vcc.engine.graphs.program import Call
from vcc.engine.ops.register import operator
from vcc.engine.types import Pieces, Traced


def interpret(pieces: Pieces, given: Mapping[str, Tensor]) -> list[Tensor]:
    """The outputs of a program.

    Args:
        pieces: program and unique pieces.
        given: inputs, weights and constants by value name; those that ops write are written.
    """
    program = pieces.program
    sizes = {s.name: given[s.source].shape[s.dim] for s in program.symbols}
    values = dict(given)
    for value in program.of_role("buffer"):
        dtype = DTYPES[value.dtype]
        poison = float("nan") if dtype.is_floating_point else 0
        values[value.name] = torch.full(evaluate_all(value.shape, sizes), poison, dtype=dtype)
    graphs = {piece.id: piece.graph for piece in pieces.unique}
    for call in program.calls:
        _run(call, graphs, values)
    return [values[name] for name in program.outputs]


def _run(call: Call, graphs: Mapping[str, Any], values: dict[str, Tensor]) -> None:
    arguments = [values[a] if isinstance(a, str) else a[0] for a in call.args]
    if call.kind == "piece":
        Interpreter(graphs[call.target]).run(*arguments)
        return
    result = operator(call.target)(*arguments)
    if call.returns:
        found = result if isinstance(result, (tuple, list)) else (result,)
        for name, tensor in zip(call.outs, found, strict=True):
            values[name].copy_(tensor)


def given_of(
    traced: Traced, module: torch.nn.Module, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Tensors of every placeholder of a trace by its name in the graph."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    known = {**state, **traced.constants, **inputs}
    return {p.name: known[p.target] for p in traced.placeholders}


def same_as_model(
    function: Any,
    pieces: Pieces,
    traced: Traced,
    inputs: Mapping[str, Tensor],
    module: torch.nn.Module | None = None,
) -> None:
    """Assert that the program gives and writes what the model itself gives and writes."""
    owner = module or torch.nn.Module()
    mine, theirs = ({k: v.clone() for k, v in inputs.items()} for _ in range(2))
    found = interpret(pieces, given_of(traced, owner, mine))
    expected = function(owner, **theirs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    torch.testing.assert_close(found, list(expected))
    torch.testing.assert_close(mine, theirs)
