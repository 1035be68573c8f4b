"""The size whose ranges code is made for: the tokens of a decoder's step, a module's one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcc.engine.config.sizes import token_ranges
from vcc.engine.config.types import DimRange

if TYPE_CHECKING:
    from vcc.engine.models.source import Source
    from vcc.engine.request import Settled

TOKENS = ("input_ids", 0)
"""Input and dimension that have as many entries as a decoder's step has tokens."""


@dataclass(frozen=True, slots=True)
class RangedSize:
    """A dimension of an input, with the sizes that it may have.

    Attributes:
        input, dim: where the size is read; empty and 0 where there is no such size.
        sizes: its range; None where there is no such size.
        why: why there is none.
    """

    input: str
    dim: int
    sizes: DimRange | None
    why: str = ""


def ranged_size(source: Source, max_tokens: int) -> RangedSize:
    """The size that `compile_sizes`, `compile_ranges` and gates of passes are about.

    Args:
        source: the model.
        max_tokens: token budget of a decoder's step.
    """
    if source.kind == "decoder":
        return RangedSize(*TOKENS, DimRange(1, max_tokens))
    places: dict[str, RangedSize] = {}
    for shape in source.shapes:
        for index, dim in enumerate(shape.dims):
            if dim.dynamic:
                axis = dim.axis or f"{shape.name}_{index}"
                found = RangedSize(shape.name, index, DimRange(dim.low, dim.high))
                places.setdefault(axis, found)
    if len(places) == 1:
        return next(iter(places.values()))
    why = f"its inputs have {len(places)} sizes that vary: {', '.join(places) or 'none'}"
    return RangedSize("", 0, None, why)


def size_of(settled: Settled) -> RangedSize:
    """The ranged size of a request."""
    return ranged_size(settled.request.source, settled.model.max_num_batched_tokens or 1)


def ranges_of(settled: Settled, ends: Iterable[int] = ()) -> tuple[DimRange, ...]:
    """The ranges each piece is compiled for, ranges first, then exact sizes; one without any.

    Args:
        settled: the request; its end points hold those of the built-in passes.
        ends: end points that the user's passes ask for.
    """
    config, sizes = settled.resolved.config, size_of(settled).sizes
    if sizes is None:
        return (DimRange(1, 1),)
    asked, exact = config.compile_ranges or (), config.compile_sizes or ()
    decoder = settled.request.source.kind == "decoder"
    # The inputs of a plain module are no tokens, which gates are about, unless somebody says so.
    wanted = (*asked, *ends) if decoder or asked or exact else asked
    return token_ranges(wanted, exact, sizes)


def range_name(one: DimRange) -> str:
    """A range in names of blobs: `9-32`; an exact size is `16-16`."""
    return f"{one.min}-{one.max}"
