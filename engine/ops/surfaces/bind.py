"""Hold the rows of a surface against signatures: recorded ones in tests, real ones before use.

A signature is a value here: names, types and defaults in order. It comes from a schema of torch's
language, from a recorded file, or from a function. No torch.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vcc.engine.ops.surfaces.row import (
    Arg,
    Const,
    InOut,
    Out,
    Row,
    Scratch,
    Value,
    View,
)

_PARAMETER = re.compile(
    r"(?P<type>[\w.]+(?:\([a-z]!?\)|!)?\??)\s+(?P<name>\w+)(?:=(?P<default>.+))?"
)
_KINDS: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument.

    Args:
        name: as callers write it.
        kind: `Tensor`, `float`, `int`, `bool`, `str`; empty where nothing says it.
        optional: None is taken.
        written: the callee writes into it; None where nothing says it.
        default: it may be left out.
    """

    name: str
    kind: str
    optional: bool = False
    written: bool | None = None
    default: bool = False


Parameters = tuple[Parameter, ...]


def of_schema(text: str) -> Parameters:
    """The arguments of a schema in torch's language: `name(Tensor! out, float eps=1.0) -> ()`."""
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    return tuple(_of_text(part) for part in _split(inside) if part)


def _split(text: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "([" and 1) or (letter in ")]" and -1) or 0
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _of_text(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        return Parameter(text.split()[-1].partition("=")[0], "", default="=" in text)
    kind = re.sub(r"\(.*?\)|[!?]", "", match["type"])
    marks = match["type"]
    return Parameter(match["name"], kind, "?" in marks, "!" in marks, match["default"] is not None)


def of_function(function: object) -> Parameters:
    """The arguments of a Python function; types as they are annotated."""
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return tuple(
        Parameter(one.name, kind_of(one.annotation), default=one.default is not one.empty)
        for one in found
    )


def kind_of(annotation: object) -> str:
    """A type's word: `torch.Tensor` is `Tensor`; empty for what is not annotated."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.removeprefix("torch.")


def misfit(row: Row, theirs: Parameters, ours: Parameters) -> str:
    """Why a row does not fit a signature; empty when it does.

    Args:
        row: arguments in their names.
        theirs: what the symbol takes.
        ours: what the operator takes.
    """
    if not row.arguments:
        return _same(row, theirs, ours)
    for arguments in row.calls:
        for why in _misfits(row, arguments, theirs, ours):
            return f"{row.op}: {row.symbol} {why}"
    left = {one.name for one in ours if not one.default} - _used(row)
    return f"{row.op}: {row.symbol} is not told {min(left)}" if left else ""


def _same(row: Row, theirs: Parameters, ours: Parameters) -> str:
    names = tuple(one.name for one in theirs if one.name != "through")
    wanted = tuple(one.name for one in ours)
    if names == wanted:
        return ""
    return f"{row.op}: {row.symbol} takes {', '.join(names)}, not {', '.join(wanted)}"


def _misfits(
    row: Row, arguments: Mapping[str, Value], theirs: Parameters, ours: Parameters
) -> Iterator[str]:
    known = {one.name: one for one in theirs}
    own = {one.name: one for one in ours}
    for name, value in arguments.items():
        if name not in known:
            yield f"has no argument {name}"
        elif isinstance(value, Arg | InOut) and value.name not in own:
            yield f"is given {value.name}, which the operator does not have"
        elif why := _wrong_kind(known[name], value, own):
            yield f"takes {name} {why}"
    for one in theirs:
        if not one.default and one.name not in arguments:
            yield f"needs {one.name}"


def _wrong_kind(parameter: Parameter, value: Value, ours: Mapping[str, Parameter]) -> str:
    given = _kind(value, ours)
    if parameter.kind and given and parameter.kind != given:
        return f"as {parameter.kind}, it is given a {given}"
    writes = isinstance(value, Out | InOut | Scratch)
    if parameter.written is not None and parameter.written != writes:
        return "to write into" if parameter.written else "to read only"
    return ""


def _kind(value: Value, ours: Mapping[str, Parameter]) -> str:
    if isinstance(value, Const):
        return "" if value.value is None else _KINDS[type(value.value)]
    return ours[value.name].kind if isinstance(value, Arg | InOut) else "Tensor"


def _used(row: Row) -> set[str]:
    used = {limit.fact for limit in row.limits if limit.equals is not None} | set(row.implied)
    for value in (one for call in row.calls for one in call.values()):
        if isinstance(value, Arg | InOut):
            used.add(value.name)
        if isinstance(value, Arg | Out) and value.view in (View.HEADS, View.SBHD):
            used.add("head_dim")
    return used
