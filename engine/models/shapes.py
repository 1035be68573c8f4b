"""Input shapes of a module: `name=8x128`, `name=1-8x128:int64`, `name=T@1-8x128`, `name=1-8~4x128`.

Dimensions of one name (`T`) have one size in every call; without names each size is its own. After
a range `~4` is the size that a trace sees, which steers code and, traced once, decides branches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vcc.cache.errors import ModelError, UsageError
from vcc.engine.config.modes import Dtype
from vcc.engine.models.tensor_info import SIZES

LARGEST = 2**31 - 1

DTYPES = {**{name: name for name in SIZES}, **{one.value: one.torch_name for one in Dtype}}
"""How a dtype may be written -> torch's name: `--dtype` has short names for three."""

_SHAPE = re.compile(r"([A-Za-z_]\w*)=([0-9A-Z@x~-]+)(?::(\w+))?")
_DIM = re.compile(r"(?:([A-Z][A-Z0-9]*)@)?(\d{1,10})(?:-(\d{1,10})(?:~(\d{1,10}))?)?")


@dataclass(frozen=True, slots=True)
class Dim:
    """Sizes that one dimension may have, both ends included.

    Attributes:
        low, high: the sizes.
        axis: what ties it to other dimensions; empty for a size of its own.
        example: the size that a trace sees; 0 chooses.
    """

    low: int
    high: int
    axis: str = ""
    example: int = 0

    @property
    def dynamic(self) -> bool:
        """Whether more than one size is allowed."""
        return self.low != self.high

    def __str__(self) -> str:
        named = f"{self.axis}@" if self.axis else ""
        seen = f"~{self.example}" if self.example else ""
        return f"{named}{self.low}-{self.high}{seen}" if self.dynamic else str(self.low)


@dataclass(frozen=True, slots=True)
class InputShape:
    """One input of a module.

    Attributes:
        name: parameter of the module's `forward`.
        dims: outermost first.
        dtype: torch's name of the dtype; None means the dtype the model is compiled for.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None

    @classmethod
    def parse(cls, text: str) -> InputShape:
        """The inverse of `str`.

        Raises:
            UsageError: the text is malformed, or a size is 0 or too large.
        """
        match = _SHAPE.fullmatch(text)
        dims = [_DIM.fullmatch(part) for part in match.group(2).split("x")] if match else [None]
        if match is None or None in dims:
            raise _malformed(text, "it does not have the form name=sizes")
        dtype = match.group(3)
        if dtype is not None and dtype not in DTYPES:
            raise _malformed(text, f"{dtype} is not a dtype; known: {', '.join(DTYPES)}")
        sizes = tuple(_dim(text, dim) for dim in dims if dim)
        return cls(match.group(1), sizes, dtype and DTYPES[dtype])

    def __str__(self) -> str:
        dtype = "" if self.dtype is None else f":{self.dtype}"
        return f"{self.name}={'x'.join(map(str, self.dims))}{dtype}"


def parse_shapes(texts: Sequence[str]) -> tuple[InputShape, ...]:
    """The shapes of all inputs, in order.

    Raises:
        UsageError: one is malformed, or a name occurs twice.
    """
    shapes = tuple(InputShape.parse(text) for text in texts)
    check_axes(shapes)
    names = [shape.name for shape in shapes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--shape names {twice} twice", "each input has one shape")
    return shapes


def check_axes(shapes: Sequence[InputShape]) -> None:
    """Raise UsageError for a named dimension that has two ranges."""
    ranges: dict[str, Dim] = {}
    for dim in (dim for shape in shapes for dim in shape.dims if dim.axis):
        first = ranges.setdefault(dim.axis, dim)
        if first != dim:
            raise UsageError(
                f"dimension {dim.axis} has two ranges", f"they are {first} and {dim}", "give one"
            )


def _dim(text: str, match: re.Match[str]) -> Dim:
    low = int(match.group(2))
    high = int(match.group(3) or low)
    example = int(match.group(4) or 0) if high != low else 0
    dim = Dim(low, high, match.group(1) or "" if high != low else "", example)
    if not 1 <= dim.low <= dim.high <= LARGEST:
        raise _malformed(text, f"the size {dim} is 0, too large, or ends before it starts")
    if example and not low <= example <= high:
        raise _malformed(text, f"the example {example} is outside of {low} to {high}")
    return dim


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(
        f"--shape {text!r:.80} cannot be read", why, "write name=8x128, or name=1-8x128 for a range"
    )


def check_declared(shapes: Sequence[InputShape]) -> None:
    """Refuse to trace a factory's module whose inputs nobody declared.

    Raises:
        ModelError: there are none.
    """
    if not shapes:
        raise ModelError(
            "the module's inputs are not declared",
            "their shapes cannot be guessed",
            "name each: --shape x=8x128, or a range --shape x=1-8x128",
        )
