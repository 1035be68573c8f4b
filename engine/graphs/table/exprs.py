"""Expression records: their grammar, the range of their values, and their values.

A range holds for every size between a symbol's low and high, so what has passed here cannot
overflow later, whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vcc.engine.graphs.table.frame import Frame, refuse
from vcc.engine.graphs.table.layout import MOST_INT, MOST_TERMS, Op, Section

Range = tuple[int, int]

_DIVISIONS = frozenset((Op.FLOORDIV, Op.MOD, Op.CEILDIV))

_RANGES: Mapping[int, Callable[[Range, Range], Range]] = {
    Op.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Op.MUL: lambda a, b: (a[0] * b[0], a[1] * b[1]),
    Op.FLOORDIV: lambda a, b: (a[0] // b[0], a[1] // b[0]),
    Op.MOD: lambda a, b: (0, min(a[1], b[0] - 1)),
    Op.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Op.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    Op.CEILDIV: lambda a, b: (-(-a[0] // b[0]), -(-a[1] // b[0])),
}

_VALUES: Mapping[int, Callable[[int, int], int]] = {
    Op.ADD: lambda a, b: a + b,
    Op.MUL: lambda a, b: a * b,
    Op.FLOORDIV: lambda a, b: a // b,
    Op.MOD: lambda a, b: a % b,
    Op.MIN: min,
    Op.MAX: max,
    Op.CEILDIV: lambda a, b: -(-a // b),
}


@dataclass(frozen=True, slots=True)
class Exprs:
    """Checked expression records.

    A negative constant stands for the bits of a double: it is no operand, size or offset.
    """

    records: Sequence[tuple[int, bytes, int, int]]
    ranges: Sequence[Range]

    def usable(self, index: int) -> bool:
        """Whether `index` is an expression with values of zero and more."""
        return index < len(self.ranges) and self.ranges[index][0] >= 0

    def constant(self, index: int) -> int | None:
        """The number of a CONST record, None for any other index."""
        literal = index < len(self.records) and self.records[index][0] == Op.CONST
        return self.records[index][3] if literal else None

    def fixed(self, index: int) -> bool:
        """Whether the value is the same for all sizes."""
        low, high = self.ranges[index]
        return low == high

    def values(self, sizes: Sequence[int]) -> list[int]:
        """The value of every record at these sizes, one for each symbol in order."""
        found: list[int] = []
        for op, _, a, b in self.records:
            if op == Op.CONST:
                found.append(b)
            elif op == Op.SYMBOL:
                found.append(sizes[a])
            else:
                found.append(_VALUES[op](found[a], found[b]))
        return found


def check_exprs(frame: Frame) -> Exprs:
    """Check every expression record.

    Raises:
        IntegrityError: not of the grammar, longer than `MOST_TERMS`, or beyond 63 bits at some
            size that its symbols allow.
    """
    symbols = [(low, high) for _, _, low, high in frame.records[Section.SYMBOLS]]
    ranges: list[Range] = []
    terms: list[int] = []
    for index, (op, zero, a, b) in enumerate(frame.records[Section.EXPRS]):
        if any(zero) or op > max(Op):
            refuse(Section.EXPRS, index, f"unknown operation {op}, or a field that must be zero")
        if op <= Op.SYMBOL:
            ranges.append(_leaf(index, op, a, b, symbols))
            terms.append(1)
            continue
        _check_operands(frame, index, ranges)
        ranges.append(_RANGES[op](ranges[a], ranges[b]))
        terms.append(1 + terms[a] + terms[b])
        if ranges[-1][1] > MOST_INT or terms[-1] > MOST_TERMS:
            refuse(Section.EXPRS, index, f"beyond 63 bits, or more than {MOST_TERMS} terms")
    return Exprs(frame.records[Section.EXPRS], ranges)


def _leaf(index: int, op: int, a: int, b: int, symbols: Sequence[Range]) -> Range:
    known = a == 0 if op == Op.CONST else a < len(symbols) and b == 0
    if not known:
        refuse(Section.EXPRS, index, "names no symbol, or a field that must be zero is not")
    return (b, b) if op == Op.CONST else symbols[a]


def _check_operands(frame: Frame, index: int, ranges: Sequence[Range]) -> None:
    op, _, a, b = frame.records[Section.EXPRS][index]
    if a >= index or not 0 <= b < index:
        refuse(Section.EXPRS, index, "an operand does not come before it")
    if ranges[a][0] < 0 or ranges[b][0] < 0:
        refuse(Section.EXPRS, index, "an operand is negative")
    literal = frame.records[Section.EXPRS][b][0] == Op.CONST
    if op in _DIVISIONS and not (literal and ranges[b][0] >= 1):
        refuse(Section.EXPRS, index, "divides by something other than a positive constant")
