"""Run an operator list: a piece of the back end that compiles nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.op_list import ARITHMETIC, OpCall, OpList, decode, reads
from vcc.engine.ops.register import operator as operator_named
from vcc.engine.torch_shim.aoti_runner import RunPiece

Fill = Callable[[list[Any]], Any]
"""Gives an argument, out of the values that there are."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A call with its function, and the values that nobody reads after it."""

    function: Callable[..., Any]
    args: tuple[Fill, ...]
    kwargs: Mapping[str, Fill]
    dead: tuple[int, ...]


def open_op_list(data: bytes | memoryview) -> RunPiece:
    """Read a list and return its call, which is that of a compiled piece.

    Raises:
        IntegrityError: the list is refused, or an operator is not registered here.
    """
    found = decode(data)
    bound, count = _bound(found), found.arguments

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values: list[Any] = list(arguments)
        if len(values) != count:
            raise IntegrityError(f"a piece of {count} arguments was given {len(values)}")
        with torch.no_grad():
            for call in bound:
                args = [fill(values) for fill in call.args]
                kwargs = {name: fill(values) for name, fill in call.kwargs.items()}
                values.append(call.function(*args, **kwargs))
                for number in call.dead:
                    values[number] = None
        return []

    return run


def _bound(found: OpList) -> tuple[_Bound, ...]:
    last: dict[int, int] = {}
    for index, call in enumerate(found.calls):
        last[found.arguments + index] = index  # what nobody reads dies at once
        for value in (*call.args, *call.kwargs.values()):
            last.update(dict.fromkeys(reads(value), index))
    dying: dict[int, list[int]] = {}
    for number, index in last.items():
        dying.setdefault(index, []).append(number)
    return tuple(_call(call, tuple(dying.get(i, ()))) for i, call in enumerate(found.calls))


def _call(call: OpCall, dead: tuple[int, ...]) -> _Bound:
    kwargs = {name: _fill(value) for name, value in call.kwargs.items()}
    return _Bound(_function(call.op), tuple(_fill(value) for value in call.args), kwargs, dead)


def _function(name: str) -> Callable[..., Any]:
    if not name.startswith(ARITHMETIC):
        return operator_named(name)
    word = name.removeprefix(ARITHMETIC)
    found: Callable[..., Any] = getattr(torch if word.startswith("sym_") else operator, word)
    return found


def _fill(value: Any) -> Fill:
    if isinstance(value, list):
        parts = tuple(_fill(item) for item in value)
        return lambda values: [part(values) for part in parts]
    if not isinstance(value, dict):
        return lambda values: value
    ((kind, held),) = value.items()
    if kind == "v":
        return lambda values: values[held]
    known = _object(kind, held)
    return lambda values: known


def _object(kind: str, name: str) -> Any:
    """A torch object by its name; only objects of that very kind."""
    try:
        # Not getattr, which imports parts of torch by name.
        found = MADE[kind](name) if kind in MADE else vars(torch).get(name)
    except (ValueError, RuntimeError):
        found = None
    if not isinstance(found, KINDS[kind]):
        raise IntegrityError("operator list refused", f"{name[:40]!r} is no {kind}")
    return found


MADE: Mapping[str, Callable[[str], Any]] = {"float": float, "device": torch.device}
"""Objects that are made of their text; others have names in torch."""

KINDS: Mapping[str, type] = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
    "float": float,
}
