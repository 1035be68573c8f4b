"""Read a step program from disk: beyond its grammar it must keep names, order, roles and bounds."""

from __future__ import annotations

from math import prod

import msgspec

from vcc.cache.errors import IntegrityError
from vcc.engine.graphs.expr import MOST, Expr, check, most
from vcc.engine.graphs.program import VERSION, Call, Program, Symbol, Value

MOST_DIMS = 16
MOST_ELEMENTS = 1 << 48
"""Elements that one value may have at its largest sizes."""


def decode(data: bytes | memoryview) -> Program:
    """Parse and check a program that came from disk.

    Raises:
        IntegrityError: not of the grammar, or refused by `check_program`.
    """
    try:
        program = msgspec.json.decode(data, type=Program)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError("step program refused", str(error)[:200]) from None
    if program.version != VERSION:
        raise IntegrityError("step program refused", f"version {program.version}, not {VERSION}")
    check_program(program)
    return program


def check_program(program: Program) -> None:
    """Refuse a program that cannot be bound.

    Raises:
        IntegrityError: a name that nothing defines, a value read before it is written, a write to
            what must not be written, a size out of bounds.
    """
    values = program.by_name()
    symbols = frozenset(symbol.name for symbol in program.symbols)
    if len(values) != len(program.values) or len(symbols) != len(program.symbols):
        _refuse("two values or two sizes share one name")
    _check_known(program, frozenset(values))
    for symbol in program.symbols:
        _check_symbol(symbol, values[symbol.source])
    highest = {symbol.name: symbol.high for symbol in program.symbols}
    for value in program.values:
        _check_shape(value, symbols, highest)
    _check_order(program, values)


def _check_known(program: Program, names: frozenset[str]) -> None:
    used = {arg for call in program.calls for arg in call.args if isinstance(arg, str)}
    used.update(name for call in program.calls for name in call.outs)
    used.update(program.outputs, (symbol.source for symbol in program.symbols))
    if unknown := sorted(used - names):
        _refuse(f"no value is called {unknown[0]!r:.80}")


def _check_symbol(symbol: Symbol, source: Value) -> None:
    if not 0 <= symbol.low <= symbol.high <= MOST:
        _refuse(f"size {symbol.name!r:.80} has an empty range")
    read = source.shape[symbol.dim : symbol.dim + 1] if symbol.dim >= 0 else []
    if read != [symbol.name] or source.role != "input":
        _refuse(f"no input has size {symbol.name!r:.80} where it says")


def _check_shape(value: Value, symbols: frozenset[str], highest: dict[str, int]) -> None:
    if len(value.shape) > MOST_DIMS:
        _refuse(f"{value.name!r:.80} has {len(value.shape)} dimensions")
    sizes = [_largest(expr, symbols, highest) for expr in value.shape]
    # A KV cache is sized when a model boots: its symbol's range says nothing about memory.
    if value.role != "input" and prod(sizes) > MOST_ELEMENTS:
        _refuse(f"{value.name!r:.80} has {prod(sizes)} elements")


def _largest(expr: Expr, symbols: frozenset[str], highest: dict[str, int]) -> int:
    check(expr, symbols)
    return max(0, most(expr, highest))


def _check_order(program: Program, values: dict[str, Value]) -> None:
    written = {value.name for value in program.values if value.role != "buffer"}
    for call in program.calls:
        _check_call(call, values)
        fresh = set(call.outs)
        read = {arg for arg in call.args if isinstance(arg, str)} - fresh
        if early := sorted(read - written):
            _refuse(f"{early[0]!r:.80} is read before it is written")
        written |= fresh
    if never := sorted(set(program.outputs) - written):
        _refuse(f"output {never[0]!r:.80} is never written")


def _check_call(call: Call, values: dict[str, Value]) -> None:
    if any(isinstance(arg, list) and len(arg) != 1 for arg in call.args):
        _refuse(f"a literal of {call.target!r:.60} is not one value")
    if not call.returns and (loose := sorted(set(call.outs) - {a for a in call.args if _named(a)})):
        _refuse(f"{loose[0]!r:.80} is written but not handed over")
    may = ("buffer",) if call.kind == "piece" or call.returns else ("buffer", "input")
    if wrong := sorted(name for name in call.outs if values[name].role not in may):
        _refuse(f"{wrong[0]!r:.80} is written, but it is a {values[wrong[0]].role}")


def _named(arg: object) -> bool:
    return isinstance(arg, str)


def _refuse(why: str) -> None:
    raise IntegrityError("step program refused", why)
