"""Where the kernels of a table come from: kept in memory beside a build, never in an artifact.

`vcc verify --interpret` runs these sources by Triton's interpreter on the CPU. A table names its
kernels by cubin, so a source is found by the cubin's digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import Expr

Constant = bool | int | float | str | None
"""A compiled-in value; an element type stands as its Triton name behind `dtype:`, `dtype:bf16`."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What one cubin was compiled from.

    Attributes:
        cubin: SHA-256 of the cubin, in hex.
        function: name of the `triton.jit` function.
        module: importable module that defines it; empty for a generated kernel.
        text: Python source of the module that Inductor generated; empty for vcc's own kernels.
        parameters: run-time parameters in launch order, (name, Triton type such as `*bf16`).
        constants: values of the constexpr parameters, by name.
    """

    cubin: str
    function: str
    module: str
    text: str
    parameters: tuple[tuple[str, str], ...]
    constants: Mapping[str, Constant]

    def offsets(self) -> Mapping[str, int]:
        """Byte of each parameter in a node's parameter block, by name."""
        return parameter_offsets(self.parameters)


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """Where a value of the step program lies while it lives; strides in elements."""

    region: int
    offset: Expr
    dtype: str
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]


SIZES: Mapping[str, int] = {"i32": 4, "i64": 8, "fp32": 4, "fp64": 8}
"""Bytes of the parameters that are no pointers, by Triton type; a `float` argument is fp32."""


def parameter_offsets(parameters: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """Byte of each parameter in the block, each at its natural alignment.

    Raises:
        CompileError: a parameter of a type that a table cannot bind.
    """
    found, at = {}, 0
    for name, kind in parameters:
        size = parameter_size(name, kind)
        at = -(-at // size) * size
        found[name] = at
        at += size
    return found


def parameter_size(name: str, kind: str) -> int:
    """Bytes of a parameter of a Triton type.

    Raises:
        CompileError: a node table cannot bind that type.
    """
    size = 8 if kind.startswith("*") else SIZES.get(kind, 0)
    if not size:
        raise CompileError(
            f"kernel parameter {name} is {kind}",
            f"a node table binds pointers, {', '.join(SIZES)}",
            "make it a constexpr",
        )
    return size


def constant(name: str, value: Any) -> Constant:
    """A compiled-in value in its plain form.

    Raises:
        CompileError: a value that has none.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value).__name__ == "constexpr":
        return constant(name, value.value)
    if type(value).__name__ == "dtype" and isinstance(getattr(value, "name", None), str):
        return f"dtype:{value.name}"
    raise CompileError(
        f"constant {name} of a kernel is a {type(value).__name__}",
        "the CPU check rebuilds kernels from plain values",
        "use a number, a text or an element type",
    )


def encode(sources: Mapping[str, KernelSource]) -> bytes:
    """Sources as JSON, to hand them from one process of a build to another."""
    return json.dumps([asdict(sources[digest]) for digest in sorted(sources)]).encode()


def decode(data: bytes) -> dict[str, KernelSource]:
    """Read what `encode` wrote; sources by cubin digest."""
    found = {}
    for entry in json.loads(data):
        parameters = tuple((name, kind) for name, kind in entry.pop("parameters"))
        found[entry["cubin"]] = KernelSource(parameters=parameters, **entry)
    return found
