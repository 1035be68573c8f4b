"""Bind a program's calls to memory: each call becomes a function without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.base import Launch
from vcc.engine.graphs.program import Call, Program
from vcc.engine.runtime.memory import StepMemory
from vcc.engine.torch_shim.aoti_runner import RunPiece

Op = Callable[..., Any]

KEPT = 4
"""Bindings kept for sizes that have no graph: the last few steps often repeat."""


class Binder:
    """Binds the calls of one program at given sizes.

    Args:
        program: the step.
        memory: where its values lie.
        pieces: opened pieces by id.
        ops: splitting ops by qualified name.
    """

    def __init__(
        self,
        program: Program,
        memory: StepMemory,
        pieces: Mapping[str, RunPiece],
        ops: Mapping[str, Op],
    ) -> None:
        self.program = program
        self._memory = memory
        self._targets: list[Any] = [_target(call, pieces, ops) for call in program.calls]
        self._names = tuple(symbol.name for symbol in program.symbols)
        self._recent: dict[tuple[int, ...], tuple[Launch, ...]] = {}

    def calls(self, sizes: tuple[int, ...]) -> tuple[Launch, ...]:
        """All calls at these sizes, one for each of the program's, in order."""
        bound = self._recent.get(sizes)
        if bound is None:
            bound = self._bind(dict(zip(self._names, sizes, strict=True)))
            if len(self._recent) >= KEPT:
                self._recent.pop(next(iter(self._recent)))
            self._recent[sizes] = bound
        return bound

    def _bind(self, sizes: Mapping[str, int]) -> tuple[Launch, ...]:
        views: dict[str, torch.Tensor] = {}

        def view(name: str) -> torch.Tensor:
            if name not in views:
                views[name] = self._memory.view(name, sizes)
            return views[name]

        pairs = zip(self.program.calls, self._targets, strict=True)
        return tuple(_bound(call, target, view) for call, target in pairs)


def _bound(call: Call, target: Any, view: Callable[[str], torch.Tensor]) -> Launch:
    args = [view(arg) if isinstance(arg, str) else arg[0] for arg in call.args]
    if call.kind == "piece":
        return partial(target, args)
    if call.returns:
        return partial(_copy_results, target, args, [view(name) for name in call.outs])
    return partial(target, *args)


def _copy_results(op: Op, args: Sequence[Any], outs: Sequence[torch.Tensor]) -> None:
    results = op(*args)
    for out, result in zip(outs, results if len(outs) > 1 else (results,), strict=True):
        out.copy_(result)


def _target(call: Call, pieces: Mapping[str, RunPiece], ops: Mapping[str, Op]) -> Any:
    table: Mapping[str, Any] = pieces if call.kind == "piece" else ops
    if call.target not in table:
        raise IntegrityError(
            f"the step program calls {call.target[:60]}",
            f"the artifact holds no such {call.kind}",
            "rebuild it: vcc compile",
        )
    return table[call.target]
