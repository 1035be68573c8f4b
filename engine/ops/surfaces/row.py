"""A row of a surface: one operator of ours as a package has it. No torch.

A row is data: which symbol, what each of its arguments is given, which of them receive results,
and what the kernel takes. `bind.py` holds a row against a recorded signature, `call.py` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

Sizes = Mapping[str, int]
"""Sizes of a call by name: `tokens`, `width`, `heads`, `head_dim`; what a row needs of them."""


class Strides(Enum):
    """Which layouts a kernel takes; any other is copied before the call."""

    CONTIGUOUS = "contiguous rows"
    ROWS = "any row stride"
    ANY = "any stride"


class View(Enum):
    """The shape in which a tensor is handed over; T rows, H heads of D, R rotated values."""

    PLAIN = "as it is"
    MATRIX = "[rows, width]"
    HEADS = "[T, H, D]"
    SBHD = "[T, 1, H, D]"
    ANGLES = "[T, 1, 1, R / 2]"


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of our operator.

    Args:
        name: as the operator's schema has it.
        view: the shape in which it is handed over.
    """

    name: str
    view: View = View.PLAIN


@dataclass(frozen=True, slots=True)
class Out:
    """A fresh tensor that receives a result.

    Args:
        index: which result of our operator.
        view: the shape in which it is handed over.
    """

    index: int
    view: View = View.PLAIN


@dataclass(frozen=True, slots=True)
class InOut:
    """A copy of an argument that the symbol overwrites with a result.

    Args:
        name: the argument of ours.
        index: which result it becomes.
    """

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """A fresh tensor that is written and then forgotten.

    Args:
        index: the result of ours whose shape and element type it has.
    """

    index: int


@dataclass(frozen=True, slots=True)
class Const:
    """A fixed value."""

    value: bool | int | float | str | None


Value = Arg | Out | InOut | Scratch | Const


@dataclass(frozen=True, slots=True)
class Limit:
    """A number that a layer is built with and the values of it that a kernel takes.

    Args:
        fact: what the layer calls it: `weight_offset`, `width`, `head_dim`.
        equals: the one value that is taken; None where there is a bound instead.
        most: the largest value that is taken.
    """

    fact: str
    equals: float | None = None
    most: float | None = None

    def refusal(self, facts: Mapping[str, float]) -> str:
        """Why a layer of these facts is not taken; empty when it is."""
        if self.fact not in facts:
            return ""
        found = facts[self.fact]
        if self.equals is not None and found != self.equals:
            return f"it takes {self.fact} {self.equals:g} only, not {found:g}"
        if self.most is not None and found > self.most:
            return f"it takes {self.fact} up to {self.most:g}, not {found:g}"
        return ""


def no_workspace(sizes: Sizes) -> int:
    """Most kernels need no scratch memory."""
    return 0


@dataclass(frozen=True, slots=True)
class Row:
    """One operator as a package has it.

    Args:
        op: name in `torch.ops.vcc`.
        symbol: `module:name` of a function, or `namespace::name` of a torch operator.
        arguments: the symbol's argument names to what each is given; none where they are ours.
        again: arguments of further calls of the symbol, where one call gives one result.
        implied: arguments of ours that the shapes of results tell.
        returns: the symbol returns the one result, in the shape of its input.
        dtypes: element types of the operator's activations.
        strides: layouts that the kernel takes.
        limits: numbers of the layer that it takes.
        archs: architectures that it is compiled for; empty for all of the platform.
        minimum: the first version of the package that has it; empty for ours.
        capturable: a static graph may hold it: it neither waits nor allocates past torch.
        workspace: bytes of scratch memory, as a function of sizes.
    """

    op: str
    symbol: str
    arguments: Mapping[str, Value] = field(default_factory=dict)
    again: tuple[Mapping[str, Value], ...] = ()
    implied: tuple[str, ...] = ()
    returns: bool = False
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    strides: Strides = Strides.ROWS
    limits: tuple[Limit, ...] = ()
    archs: tuple[str, ...] = ()
    minimum: str = ""
    capturable: bool = True
    workspace: Callable[[Sizes], int] = no_workspace

    @property
    def calls(self) -> tuple[Mapping[str, Value], ...]:
        """The arguments of each call of the symbol."""
        return (self.arguments, *self.again)

    def refusal(self, arch: str, dtype: str, facts: Mapping[str, float]) -> str:
        """Why a layer cannot use this row; empty when it can.

        Args:
            arch: architecture, empty when it is not known.
            dtype: element type under torch's name, empty when it is not known.
            facts: numbers of the layer.
        """
        if arch and self.archs and arch not in self.archs:
            return f"it is compiled for {', '.join(self.archs)}, not for {arch}"
        if dtype and dtype not in self.dtypes:
            return f"it takes {', '.join(self.dtypes)}, not {dtype}"
        return next((why for limit in self.limits if (why := limit.refusal(facts))), "")


def table(*rows: Row) -> Mapping[str, Row]:
    """Rows by operator."""
    return {row.op: row for row in rows}
