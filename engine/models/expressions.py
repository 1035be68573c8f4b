"""Binding expressions: how one parameter of a module is made from the tensors of a checkpoint.

An expression has a text form that is stored in the manifest:

    binding := expr | channels_last(expr)
    expr := tensor("name") | tied("parameter") | rows(expr, a:b) | transpose(expr)
          | cat(expr, ...) | stack(expr, ...) | stack(expr, a:b) | flat(expr) | repeat(expr, n)

`cat` and `stack` join along the first dimension, `rows` takes rows a to b of it, `transpose` swaps
the two dimensions of a matrix, `flat` makes a vector of all elements in order, `repeat` a vector of
n times the one element there is, `tied` is the tensor of another parameter. `stack(expr, a:b)`
stacks the expressions that come of putting each number from a to b - 1 for `*` in the names of
tensors: a layer of 128 experts takes one line. `channels_last` moves the second dimension of three
or more behind all others, and only a whole binding is one. Names are JSON strings.
`expression_text` reads the text. Torch-free.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from vcc.cache.errors import ModelError

NUMBER = "*"
"""Where a number stands in the names of the tensors of `Each`."""


@dataclass(frozen=True, slots=True)
class FromTensor:
    """The tensor of this name in the checkpoint."""

    name: str

    def __str__(self) -> str:
        return f"tensor({json.dumps(self.name)})"


@dataclass(frozen=True, slots=True)
class Tied:
    """The tensor of another parameter of the module."""

    name: str

    def __str__(self) -> str:
        return f"tied({json.dumps(self.name)})"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows start to stop of an expression."""

    source: Binding
    start: int
    stop: int

    def __str__(self) -> str:
        return f"rows({self.source}, {self.start}:{self.stop})"


@dataclass(frozen=True, slots=True)
class Cat:
    """Expressions one after another along the first dimension."""

    parts: tuple[Binding, ...]

    def __str__(self) -> str:
        return f"cat({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Stack:
    """Expressions of one shape along a new first dimension."""

    parts: tuple[Binding, ...]

    def __str__(self) -> str:
        return f"stack({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Each:
    """The expressions for each number from start to stop - 1, along a new first dimension."""

    source: Binding
    start: int
    stop: int

    def __str__(self) -> str:
        return f"stack({self.source}, {self.start}:{self.stop})"

    @property
    def parts(self) -> tuple[Binding, ...]:
        """They all."""
        return tuple(_numbered(self.source, str(i)) for i in range(self.start, self.stop))


@dataclass(frozen=True, slots=True)
class Transpose:
    """A matrix with its dimensions swapped."""

    source: Binding

    def __str__(self) -> str:
        return f"transpose({self.source})"


@dataclass(frozen=True, slots=True)
class Flat:
    """All elements of an expression as a vector."""

    source: Binding

    def __str__(self) -> str:
        return f"flat({self.source})"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A vector of one element, so many times."""

    source: Binding
    count: int

    def __str__(self) -> str:
        return f"repeat({self.source}, {self.count})"


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """[n, channels, *sizes] as [n, *sizes, channels]; no part of another expression."""

    source: Binding

    def __str__(self) -> str:
        return f"channels_last({self.source})"


LEAST_DIMS = 3
"""Dimensions that `ChannelsLast` needs."""


def no_channels(what: str, shape: Sequence[int]) -> ModelError:
    """What is said of an expression that moves channels which are not there."""
    return ModelError(
        f"shapes do not go together in {what[:120]}",
        f"its source is {list(shape)}, which has no sizes behind its channels",
        "build the artifact anew: vcc compile",
    )


Binding: TypeAlias = (
    "FromTensor | Tied | Rows | Cat | Stack | Each | Transpose | Flat | Repeat | ChannelsLast"
)


def _numbered(binding: Binding, number: str) -> Binding:
    """An expression with a number for `*` in the names of its tensors."""
    if isinstance(binding, FromTensor):
        return FromTensor(binding.name.replace(NUMBER, number))
    if isinstance(binding, (Cat, Stack)):
        return replace(binding, parts=tuple(_numbered(part, number) for part in binding.parts))
    if isinstance(binding, (Rows, Each, Transpose, Flat, Repeat)):
        return replace(binding, source=_numbered(binding.source, number))
    return binding
