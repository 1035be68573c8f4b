"""Options that several commands share as the fields of a dataclass: one parameter, many options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def folding(name: str, record: type, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """A command whose parameter `name` becomes the options that are the fields of `record`.

    Typer makes options of a signature; they stand where the parameter stood.

    Args:
        name: the parameter.
        record: a dataclass whose fields are annotated as Typer's options.
        without: fields that the command has no option for.
    """
    hints = get_type_hints(record, include_extras=True)
    shared = [_parameter(one, hints) for one in fields(record) if one.name not in without]

    def fold(command: Command) -> Command:
        shown: list[Parameter] = []
        for parameter in signature(command, eval_str=True).parameters.values():
            alone = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            shown += shared if parameter.name == name else [alone]

        @wraps(command)
        def folded(**values: Any) -> None:
            own = {one.name: values.pop(one.name) for one in shared}
            command(**{name: record(**own)}, **values)

        folded.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        folded.__annotations__ = {one.name: one.annotation for one in shown}
        return folded

    return fold


def _parameter(one: Field[Any], hints: dict[str, Any]) -> Parameter:
    default = Parameter.empty if one.default is MISSING else one.default
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name])
