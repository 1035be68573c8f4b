"""Names of operators as people write them: `ns::op`, `ns.op`, `torch.ops.ns.op`."""

from __future__ import annotations

import re
from collections.abc import Collection

from vcc.cache.errors import ConfigError

_WORD = r"[A-Za-z_]\w*"
_DOTTED = re.compile(rf"(?:torch\.ops\.)?({_WORD})\.({_WORD})(?:\.({_WORD}))?")
_COLONS = re.compile(rf"({_WORD})::({_WORD})(?:\.({_WORD}))?")


def op_name(text: str) -> str:
    """The one spelling of an operator's name: `ns::op`, or `ns::op.overload`.

    >>> op_name("torch.ops.vcc.kv_write"), op_name("vcc.kv_write"), op_name("aten::add.Tensor")
    ('vcc::kv_write', 'vcc::kv_write', 'aten::add.Tensor')

    Raises:
        ConfigError: it is no name of an operator.
    """
    match = _COLONS.fullmatch(text) or _DOTTED.fullmatch(text)
    if match is None:
        raise ConfigError(
            f'"{text}" is no name of an operator',
            "it has no namespace",
            "write namespace::name, such as vcc::paged_attention",
        )
    namespace, op, overload = match.groups()
    return f"{namespace}::{op}" + (f".{overload}" if overload else "")


def bare_name(op: str) -> str:
    """`ns::op` of `ns::op.overload`."""
    return op.partition(".")[0]


def named_in(op: str, names: Collection[str]) -> bool:
    """Whether `names` holds an operator: a bare name matches all overloads.

    Args:
        op: `ns::op` for the default overload, or `ns::op.overload`.
        names: of `op_name`.
    """
    return op in names or bare_name(op) in names or f"{op}.default" in names
