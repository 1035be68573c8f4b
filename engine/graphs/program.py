"""The step program: which pieces and splitting ops run in which order on which values.

It is the platform-neutral form of a step that partitioning produces and a loader binds to
buffers: data only, canonical JSON in the artifact's ``program`` blob. ``docs/format.md`` has
the grammar.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.expr import MOST, Expr, check

VERSION = 1

Role = Literal["input", "weight", "constant", "buffer"]

# fmt: off
Element = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "int64", "int32", "int16", "int8", "uint8", "bool",
]
# fmt: on
"""Names of element types, torch's own."""


class Symbol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A size that varies between steps: dimension `dim` of input `source`, range inclusive."""

    name: str
    low: int
    high: int
    source: str
    dim: int


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of the step; `shape` holds size expressions, `stride` is dense row-major.

    `target` is the parameter or constant name of a weight or constant, else the value's own name.
    """

    name: str
    role: Role
    dtype: Element
    shape: list[Expr]
    target: str


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call: a piece by identity, or a splitting op by qualified name.

    `args` are names of values, or literals wrapped as ``[literal]``; `outs` names the values
    written (they stand among `args` too, unless the op returns them: `returns` is then true).
    """

    kind: Literal["piece", "op"]
    target: str
    args: list[str | list[int | float | bool | str | None]]
    outs: list[str]
    returns: bool = False


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole step: values, calls in order, and the names of its outputs."""

    version: int
    symbols: list[Symbol]
    values: list[Value]
    calls: list[Call]
    outputs: list[str]

    def by_name(self) -> dict[str, Value]:
        """Values keyed by name."""
        return {value.name: value for value in self.values}

    def of_role(self, role: Role) -> tuple[Value, ...]:
        """The values of one role in program order."""
        return tuple(value for value in self.values if value.role == role)


def encode(program: Program) -> bytes:
    """Canonical JSON: field order fixed by the types, no white space."""
    return msgspec.json.encode(program)


def decode(data: bytes | memoryview) -> Program:
    """Parse and check a program that came from disk.

    Raises:
        IntegrityError: not of the grammar, or a name that nothing defines.
    """
    try:
        program = msgspec.json.decode(data, type=Program)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError("step program refused", str(error)[:200]) from None
    if program.version != VERSION:
        raise IntegrityError("step program refused", f"version {program.version}, not {VERSION}")
    _check_names(program)
    return program


def _check_names(program: Program) -> None:
    symbols = frozenset(symbol.name for symbol in program.symbols)
    names = frozenset(value.name for value in program.values)
    for expr in (size for value in program.values for size in value.shape):
        check(expr, symbols)
    used = {arg for call in program.calls for arg in call.args if isinstance(arg, str)}
    used.update(name for call in program.calls for name in call.outs)
    used.update(program.outputs, (symbol.source for symbol in program.symbols))
    if unknown := sorted(used - names):
        raise IntegrityError("step program refused", f"no value is called {unknown[0]!r:.80}")
    if len(names) != len(program.values) or len(symbols) != len(program.symbols):
        raise IntegrityError("step program refused", "two values or two sizes share one name")
    for symbol in program.symbols:
        _check_symbol(symbol, program.by_name()[symbol.source])


def _check_symbol(symbol: Symbol, source: Value) -> None:
    if not 0 <= symbol.low <= symbol.high <= MOST:
        raise IntegrityError("step program refused", f"size {symbol.name!r:.80} has an empty range")
    read = source.shape[symbol.dim : symbol.dim + 1] if symbol.dim >= 0 else []
    if read != [symbol.name] or source.role != "input":
        raise IntegrityError(
            "step program refused", f"no input has size {symbol.name!r:.80} where it says"
        )
