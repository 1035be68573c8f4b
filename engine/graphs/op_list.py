"""Operator lists: a piece as its calls in order, for the back end that compiles nothing.

Data only, canonical JSON in the artifact's `piece/<identity>.ops` blob; `docs/format.md` has the
grammar. A call names an operator `ns::op.overload`, or `py::name` for arithmetic on sizes.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from vcc.cache.errors import IntegrityError

VERSION = 1

MOST_CALLS, MOST_DEPTH = 1 << 20, 8

NAMESPACES = frozenset({"aten", "prims", "vcc"})
"""Whose operators a list may call: torch's own and ours."""

FORBIDDEN = frozenset({"aten::from_file", "aten::set_", "aten::set"})
"""Operators of torch's that reach beyond their arguments: files, and memory of other tensors."""

ARITHMETIC = "py::"

# fmt: off
FUNCTIONS = frozenset({
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "getitem",
    "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_",
    "sym_max", "sym_min", "sym_float", "sym_int", "sym_not", "sym_ite",
})
# fmt: on
"""Names after `py::`: functions of `operator`, and torch's of the same meaning for sizes."""

KINDS = ("v", "dtype", "device", "layout", "memory_format", "float")
"""Keys of what is neither a literal nor a list: a value by number, or a torch object."""


class OpCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call; its result is the next value.

    Arguments are literals, lists of arguments, or an object of one key: `{"v": 3}` is value 3.
    """

    op: str
    args: list[Any]
    kwargs: dict[str, Any] = {}


class OpList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece: values 0 to `arguments` - 1 are what it is given, each call makes one more."""

    version: int
    arguments: int
    calls: list[OpCall]


def encode(found: OpList) -> bytes:
    """Canonical JSON: field order fixed by the types, no white space."""
    return msgspec.json.encode(found)


def decode(data: bytes | memoryview) -> OpList:
    """Parse and check a list that came from disk.

    Raises:
        IntegrityError: not of the grammar, an operator that no list may call, or a value that is
            read before it is made.
    """
    try:
        found = msgspec.json.decode(data, type=OpList)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError("operator list refused", str(error)[:200]) from None
    if found.version != VERSION:
        raise IntegrityError("operator list refused", f"version {found.version}, not {VERSION}")
    if not 0 <= found.arguments <= MOST_CALLS or len(found.calls) > MOST_CALLS:
        raise IntegrityError("operator list refused", "it has too many values")
    for index, call in enumerate(found.calls):
        if not may_call(call.op):
            raise IntegrityError("operator list refused", f"it calls {call.op[:60]!r}")
        for value in (*call.args, *call.kwargs.values()):
            _check(value, found.arguments + index, 0)
    return found


def may_call(op: str) -> bool:
    """Whether a list may call this operator."""
    namespace, _, rest = op.partition("::")
    if op.startswith(ARITHMETIC):
        return rest in FUNCTIONS
    return namespace in NAMESPACES and op.partition(".")[0] not in FORBIDDEN and bool(rest)


def reads(value: Any) -> list[int]:
    """Numbers of the values that an argument names."""
    if isinstance(value, list):
        return [number for item in value for number in reads(item)]
    return [value["v"]] if isinstance(value, dict) and "v" in value else []


def _check(value: Any, made: int, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise IntegrityError("operator list refused", "an argument is nested too deeply")
    if isinstance(value, list):
        for item in value:
            _check(item, made, depth + 1)
    elif isinstance(value, dict):
        _check_object(value, made)
    elif isinstance(value, float) and not math.isfinite(value):
        raise IntegrityError("operator list refused", "a number is not finite")


def _check_object(value: dict[str, Any], made: int) -> None:
    (kind, held), *more = [*value.items()] or [("", None)]
    if more or kind not in KINDS:
        raise IntegrityError("operator list refused", f"an argument is {value!r:.80}")
    if kind == "v" and (type(held) is not int or not 0 <= held < made):
        raise IntegrityError("operator list refused", f"value {held!r:.20} is not made yet")
    if kind != "v" and not isinstance(held, str):
        raise IntegrityError("operator list refused", f"an argument is {value!r:.80}")
