"""The scales of a quantised projection: which tensors a checkpoint holds, how they are bound.

Torch-free. Projections that are one here keep the scale of each part: nothing is quantised again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vcc.cache.errors import ModelError
from vcc.engine.models.expressions import NUMBER, Binding, Cat, Each, Flat, FromTensor, Repeat
from vcc.engine.models.quant.spec import BLOCK, STATIC_ROWS, QuantSpec
from vcc.engine.models.tensor_info import Shape

Source = tuple[str, int]
"""A module of the checkpoint, and rows of its weight."""

WEIGHT_SCALE, INPUT_SCALE = "weight_scale", "input_scale"
"""Last parts of the names of a module's parameters."""


@dataclass(frozen=True, slots=True)
class Scales:
    """A parameter of scales and its sources.

    Attributes:
        parameter: name in the module.
        sources: (tensor, shape) in order, joined along the first dimension.
        flat: the parts become vectors before they are joined.
        shared: the sources hold one and the same value; the first is taken.
        each: of how many experts the sources are, stacked along a new dimension; 0 means none.
        rows: how often each source's one number is repeated; empty: not at all.
    """

    parameter: str
    sources: tuple[tuple[str, Shape], ...]
    flat: bool = True
    shared: bool = False
    each: int = 0
    rows: tuple[int, ...] = ()

    def binding(self) -> Binding:
        """The expression that makes the parameter."""
        parts: tuple[Binding, ...] = tuple(FromTensor(name) for name, _ in self.sources)
        if self.flat:
            parts = tuple(Flat(part) for part in parts)
        if self.rows:
            parts = tuple(Repeat(part, rows) for part, rows in zip(parts, self.rows, strict=True))
        joined = parts[0] if self.shared or len(parts) == 1 else Cat(parts)
        if not self.each:
            return joined
        stacked = Each(joined, 0, self.each)
        return Flat(stacked) if self.shared else stacked

    def groups(self) -> Iterator[tuple[tuple[str, Shape], ...]]:
        """The tensors of the projection, or of that of each expert."""
        if not self.each:
            yield self.sources
        for index in range(self.each):
            yield tuple((name.replace(NUMBER, str(index)), shape) for name, shape in self.sources)

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Name and shape of every tensor it needs."""
        for group in self.groups():
            yield from group


def scales_of(
    quant: QuantSpec, parameter: str, sources: tuple[Source, ...], inner: int
) -> Iterator[Scales]:
    """The scales of one projection.

    Args:
        quant: the scheme.
        parameter: the projection's module, without `.weight`.
        sources: its parts in order.
        inner: columns of its weight.

    Raises:
        ModelError: blocks of a part do not begin where the part does.
    """
    shapes = [_scale_shape(quant, rows, inner) for _, rows in sources]
    if quant.weights == "block":
        _check_blocks(sources, inner)
    named = zip((f"{name}.{quant.scale}" for name, _ in sources), shapes, strict=True)
    block = quant.weights == "block"
    rows = tuple(rows for _, rows in sources) if by_row(quant, len(sources)) else ()
    yield Scales(f"{parameter}.{WEIGHT_SCALE}", tuple(named), flat=not block, rows=rows)
    if quant.activations == "static":
        inputs = tuple((f"{name}.{INPUT_SCALE}", (1,)) for name, _ in sources)
        often = static_rows(quant, len(sources))
        rows = (often,) * len(inputs) if often > 1 else ()
        yield Scales(f"{parameter}.{INPUT_SCALE}", inputs, shared=True, rows=rows)


def by_row(quant: QuantSpec, parts: int) -> bool:
    """Whether a projection's weight has a number for each row though its parts have one each.

    Kernels of products take one number for both sides, or one for each row of both.
    """
    return quant.weights == "tensor" and (parts > 1 or quant.activations == "token")


def static_rows(quant: QuantSpec, parts: int) -> int:
    """How often the scale of a projection's static activations stands.

    More than once where its weight has a number for each row.
    """
    return STATIC_ROWS if quant.weights == "channel" or by_row(quant, parts) else 1


def _scale_shape(quant: QuantSpec, rows: int, inner: int) -> Shape:
    if quant.weights == "tensor":
        return (1,)
    if quant.weights == "channel":
        return (rows, 1)
    return (-(-rows // BLOCK), -(-inner // BLOCK))


def _check_blocks(sources: tuple[Source, ...], inner: int) -> None:
    if inner % BLOCK:
        raise ModelError(
            f"block scales of {sources[0][0]} are not supported",
            f"its rows have {inner} values, no multiple of {BLOCK}: activations have whole blocks",
        )
    for name, rows in sources[:-1]:
        if rows % BLOCK:
            raise ModelError(
                f"block scales of {name} are not supported",
                f"its {rows} rows are no multiple of {BLOCK}, and more rows follow in one"
                " projection",
            )


def same_shape(stored: Shape, expected: Shape) -> bool:
    """Whether a stored scale has the expected shape, but for dimensions of one."""
    return [n for n in stored if n != 1] == [n for n in expected if n != 1]
