"""How a module of a program is compiled: what its caller says, checked once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcc.cache.errors import ConfigError
from vcc.engine.config.model import DEFAULT_TOKENS
from vcc.engine.config.parse import as_config
from vcc.engine.config.types import CompilationConfig

Dims = int | Sequence[int] | Mapping[int, str]
"""Dynamic dimensions of one argument: one, several, or each with the name of its size."""

TOKENS = "T"
"""The size that dimensions without a name share."""

GOLDEN = ("off", "one", "all")

_AXIS = re.compile(r"[A-Z][A-Z0-9]*")


@dataclass(frozen=True, slots=True)
class Options:
    """See `vcc.compile`; `dynamic` is argument -> dimension -> name of its size."""

    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    compilation: CompilationConfig = field(default_factory=CompilationConfig)
    cache_dir: Path | None = None
    require_warm: bool = False
    golden: str = "one"
    copy: bool = True
    jobs: int = 0

    def range_of(self, axis: str) -> tuple[int, int]:
        """Smallest and largest value of a size, both included."""
        said = self.sizes.get(axis)
        tokens = self.compilation.dynamic_shapes.tokens
        if said is None and axis == TOKENS and tokens is not None:
            return tokens.min, tokens.max
        return (1, DEFAULT_TOKENS) if said is None else said


def make_options(
    dynamic_arg_dims: Mapping[str, Dims] | None,
    sizes: Mapping[str, tuple[int, int]] | None,
    compilation: CompilationConfig | Mapping[str, Any] | None,
    **others: Any,
) -> Options:
    """Options of what a caller gave.

    Raises:
        ConfigError: a dimension, a size or a field that cannot be.
    """
    dynamic = {name: _named(name, dims) for name, dims in (dynamic_arg_dims or {}).items()}
    made = Options(dynamic, dict(sizes or {}), as_config(compilation), **others)
    used = {axis for dims in dynamic.values() for axis in dims.values()}
    for axis in {*used, *made.sizes}:
        _check_range(axis, made.range_of(axis))
    if unused := sorted(made.sizes.keys() - used):
        raise ConfigError(f"size {unused[0]} is not used", "no argument has a dimension of it")
    if made.golden not in GOLDEN:
        raise ConfigError(f"golden {made.golden!r} is unknown", f"known: {', '.join(GOLDEN)}")
    return made


def _named(name: str, dims: Dims) -> Mapping[int, str]:
    if isinstance(dims, Mapping):
        found = dict(dims)
    else:
        found = dict.fromkeys((dims,) if isinstance(dims, int) else dims, TOKENS)
    for dim, axis in found.items():
        if type(dim) is not int or not isinstance(axis, str) or not _AXIS.fullmatch(axis):
            raise ConfigError(
                f"dynamic dimensions of {name} cannot be read",
                f"got {dim!r}: {axis!r}",
                'write 0, or {0: "T"}: names are capital letters and digits',
            )
    return found


def _check_range(axis: str, sizes: object) -> None:
    if not (
        isinstance(sizes, Sequence)
        and [type(one) for one in sizes] == [int, int]
        and 1 <= sizes[0] <= sizes[1] < 2**31
    ):
        raise ConfigError(
            f"the range of {axis} cannot be read",
            f"got {sizes!r}",
            f'write sizes={{"{axis}": (1, 2048)}}: smallest and largest, both included',
        )
