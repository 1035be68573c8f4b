"""Bindings as copies: which bytes of which files go where, worked out from headers alone.

The value of an expression is dense. It is described by blocks: rectangles of checkpoint tensors
with a place and two strides in the value. `cat` and `stack` move blocks, `rows` cuts them,
`transpose` swaps the strides of each, and `channels_last` makes each one many rectangles, one
behind another; no data is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from vcc.cache.errors import ModelError
from vcc.engine.models.expressions import (
    LEAST_DIMS,
    Binding,
    Cat,
    ChannelsLast,
    Each,
    Flat,
    FromTensor,
    Repeat,
    Rows,
    Stack,
    Tied,
    Transpose,
    no_channels,
)
from vcc.engine.models.tensor_info import Shape, TensorInfo

MOST_PLANES = 1 << 32
"""Of a block: a copy has 32 bits for those behind the first."""


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of elements of one checkpoint tensor; all numbers count elements.

    Attributes:
        tensor: where the elements are.
        source: first element, in the tensor.
        rows, columns: size of the rectangle; in the tensor a row's elements are neighbours.
        source_stride: from one row to the next in the tensor; 0 where all rows are one.
        place: first element, in the value.
        row_stride, column_stride: from one row or column to the next in the value.
        planes: how many such rectangles there are; each lies right behind the one before, in the
            tensor and in the value.
    """

    tensor: TensorInfo
    source: int
    rows: int
    columns: int
    source_stride: int
    place: int
    row_stride: int
    column_stride: int
    planes: int = 1


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is: its shape, and the blocks that fill it."""

    shape: Shape
    blocks: tuple[Block, ...]

    @property
    def inner(self) -> int:
        """Elements of one row along the first dimension."""
        return math.prod(self.shape[1:])


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates bindings over a checkpoint's headers.

    Attributes:
        bindings: by parameter name, for `tied`.
        tensors: the checkpoint's tensors by name.
    """

    bindings: Mapping[str, Binding]
    tensors: Mapping[str, TensorInfo]

    def owner(self, parameter: str) -> str:
        """The parameter whose bytes this one shares; itself when it is tied to none.

        Raises:
            ModelError: no such binding, or parameters that are tied in a circle.
        """
        seen: list[str] = []
        while parameter not in seen:
            seen.append(parameter)
            binding = self.bindings.get(parameter)
            if binding is None:
                raise ModelError(f"no binding for {parameter}", "the artifact does not hold one")
            if not isinstance(binding, Tied):
                return parameter
            parameter = binding.name
        raise ModelError(f"{parameter} is tied to itself", " -> ".join(seen))

    def value(self, binding: Binding) -> Value:
        """The value of one expression.

        Raises:
            ModelError: a tensor is missing, or shapes do not go together.
        """
        return _FORMS[type(binding)](self, binding)

    def _tensor(self, binding: FromTensor) -> Value:
        info = self.tensors.get(binding.name)
        if info is None:
            raise ModelError(f"no weights for {binding.name}", "the checkpoint does not hold it")
        if not math.prod(info.shape):
            return Value(info.shape, ())
        rows, columns = _rectangle(info.shape)
        return Value(info.shape, (Block(info, 0, rows, columns, columns, 0, columns, 1),))

    def _tied(self, binding: Tied) -> Value:
        of = self.bindings[self.owner(binding.name)]
        if isinstance(of, ChannelsLast):
            raise _disagree(binding, f"it is {str(of)[:120]}, which is no part of an expression")
        return self.value(of)

    def _rows(self, binding: Rows) -> Value:
        value = self.value(binding.source)
        if not value.shape or binding.stop > value.shape[0]:
            raise _disagree(binding, f"its source is {list(value.shape)}")
        if any(block.planes > 1 for block in value.blocks):
            raise _disagree(binding, "its source is turned already")
        first, last = binding.start * value.inner, binding.stop * value.inner
        kept = (part for block in value.blocks for part in _cut(block, first, last, value.inner))
        moved = tuple(replace(block, place=block.place - first) for block in kept)
        return Value((binding.stop - binding.start, *value.shape[1:]), moved)

    def _cat(self, binding: Cat) -> Value:
        values = [self.value(part) for part in binding.parts]
        if not values[0].shape or len({value.shape[1:] for value in values}) > 1:
            raise _disagree(binding, _shapes(values))
        joined = _one_after_another(values)
        return Value((sum(value.shape[0] for value in values), *values[0].shape[1:]), joined)

    def _stack(self, binding: Stack | Each) -> Value:
        values = [self.value(part) for part in binding.parts]
        if len({value.shape for value in values}) > 1:
            raise _disagree(binding, _shapes(values))
        return Value((len(values), *values[0].shape), _one_after_another(values))

    def _transpose(self, binding: Transpose) -> Value:
        value = self.value(binding.source)
        if len(value.shape) != 2:
            raise _disagree(binding, f"its source is {list(value.shape)}")
        rows, columns = value.shape

        def turned(elements: int) -> int:
            return elements % columns * rows + elements // columns

        blocks = (
            replace(
                block,
                place=turned(block.place),
                row_stride=turned(block.row_stride),
                column_stride=turned(block.column_stride),
            )
            for block in value.blocks
        )
        return Value((columns, rows), tuple(blocks))

    def _repeat(self, binding: Repeat) -> Value:
        value = self.value(binding.source)
        if value.shape != (1,):
            raise _disagree(binding, f"its source is {list(value.shape)}")
        (block,) = value.blocks
        many = replace(block, rows=binding.count, columns=1, source_stride=0, row_stride=1)
        return Value((binding.count,), (many,))

    def _channels_last(self, binding: ChannelsLast) -> Value:
        value = self.value(binding.source)
        if len(value.shape) < LEAST_DIMS:
            raise no_channels(str(binding), value.shape)
        count, channels, *sizes = value.shape
        shape = (count, *sizes, channels)
        if 1 in (channels, math.prod(sizes)):
            return Value(shape, value.blocks)
        turned = [_planes(block, channels, math.prod(sizes)) for block in value.blocks]
        found = tuple(block for block in turned if block is not None)
        if len(found) < len(turned):
            raise _disagree(binding, "its source is turned already")
        return Value(shape, found)

    def _flat(self, binding: Flat) -> Value:
        value = self.value(binding.source)
        return replace(value, shape=(math.prod(value.shape),))


_FORMS: Mapping[type[Any], Callable[[Evaluator, Any], Value]] = {
    FromTensor: Evaluator._tensor,
    Tied: Evaluator._tied,
    Rows: Evaluator._rows,
    Cat: Evaluator._cat,
    Stack: Evaluator._stack,
    Each: Evaluator._stack,
    Transpose: Evaluator._transpose,
    Flat: Evaluator._flat,
    ChannelsLast: Evaluator._channels_last,
    Repeat: Evaluator._repeat,
}


def _rectangle(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a tensor; a vector is one row."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))


def _one_after_another(values: Sequence[Value]) -> tuple[Block, ...]:
    starts = accumulate((math.prod(value.shape) for value in values[:-1]), initial=0)
    return tuple(
        replace(block, place=block.place + start)
        for value, start in zip(values, starts, strict=True)
        for block in value.blocks
    )


def _cut(block: Block, first: int, last: int, inner: int) -> Iterator[Block]:
    """The part of a block between two elements of the value that start rows of it."""
    height = block.rows if block.row_stride >= inner else 1
    width = block.columns if block.column_stride >= inner else 1
    if height > 1:
        skip, stop = _span(block.place, block.row_stride, block.rows, first, last)
        kept = replace(
            block,
            rows=stop - skip,
            source=block.source + skip * block.source_stride,
            place=block.place + skip * block.row_stride,
        )
    elif width > 1:
        skip, stop = _span(block.place, block.column_stride, block.columns, first, last)
        kept = replace(
            block,
            columns=stop - skip,
            source=block.source + skip,
            place=block.place + skip * block.column_stride,
        )
    else:
        skip, stop, kept = 0, int(first <= block.place < last), block
    if stop > skip:
        yield kept


def _planes(block: Block, channels: int, size: int) -> Block | None:
    """A block that lies without gaps, as planes [channels, size] turned to [size, channels]; None
    where it has gaps, or is no number of whole planes."""
    dense = block.rows == 1 or block.source_stride == block.row_stride == block.columns
    planes, rest = divmod(block.rows * block.columns, channels * size)
    once = block.column_stride == 1 and block.planes == 1
    if not dense or not once or rest or planes > MOST_PLANES:
        return None
    return Block(block.tensor, block.source, channels, size, size, block.place, 1, channels, planes)


def _span(place: int, stride: int, count: int, first: int, last: int) -> tuple[int, int]:
    """Which of `count` elements, `stride` apart from `place` on, start between first and last."""
    skip = max(0, -(-(first - place) // stride))
    return skip, min(count, max(0, -(-(last - place) // stride)))


def _shapes(values: Sequence[Value]) -> str:
    return "its parts are " + ", ".join(str(list(value.shape)) for value in values[:5])


def _disagree(binding: Binding, why: str) -> ModelError:
    return ModelError(f"shapes do not go together in {str(binding)[:120]}", why)
