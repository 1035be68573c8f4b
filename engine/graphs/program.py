"""The step program: which pieces and splitting ops run in which order on which values.

It is the platform-neutral form of a step that partitioning produces and a loader binds to
buffers: data only, canonical JSON in the artifact's ``program`` blob. ``docs/format.md`` has
the grammar.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from vcc.engine.graphs.expr import Expr

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


BLOB = "program"
"""Name of the blob of a program that serves every size."""


def blob_name(sizes: str = "") -> str:
    """The blob of the program of a range of sizes, such as `9-32`; of all sizes where empty."""
    return f"{BLOB}/{sizes}" if sizes else BLOB


def encode(program: Program) -> bytes:
    """Canonical JSON: field order fixed by the types, no white space."""
    return msgspec.json.encode(program)
