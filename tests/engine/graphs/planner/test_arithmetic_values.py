"""Every function of the sizes' arithmetic against plain integers, over random nested expressions.

What it says decides how much memory a step has: a rule that holds for some operands only writes
over a neighbour at the others.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vcc.cache.errors import CompileError
from vcc.engine.graphs.expr import OPERATORS, evaluate, most
from vcc.engine.graphs.planner.arithmetic import (
    BUILDERS,
    add,
    bounds,
    checked,
    dense,
    divisor,
    elements,
    extent,
    floordiv,
    is_dense,
    rebuilt,
    settled,
    times,
)
from vcc.engine.graphs.planner.memory import ALIGNMENT, Memory, aligned, lifetimes, stacked
from vcc.engine.graphs.table.types import RegionKind

SAME = {"T": "T", "B": "B"}
SAMPLES = [{"T": t, "B": b} for t, b in product((1, 2, 7, 63, 64, 255, 4096), (1, 3, 128))]
ROUND = st.sampled_from([2, 3, 4, 16, 64, 128, 256])
POSITIVE = st.integers(1, 9) | ROUND


def trees(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Expressions of all operators, of two operands and of three."""

    def operations(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        joined = st.sampled_from(["+", "*", "min", "max"])
        pairs = st.tuples(joined, parts, parts) | st.tuples(joined, parts, parts, parts)
        divided = st.tuples(st.sampled_from(["//", "%", "ceildiv"]), parts, POSITIVE)
        return (pairs | divided).map(list)

    return st.recursive(st.sampled_from(["T", "B"]) | numbers, operations, max_leaves=10)


COUNTS = trees(st.integers(0, 9) | ROUND)
SIGNED = trees(st.integers(-9, 9) | ROUND)
"""With subtraction, as Inductor writes it."""


def agrees(found: Any, wanted: Any) -> None:
    for sizes in SAMPLES:
        assert evaluate(found, sizes) == wanted(sizes), (found, sizes)


@settings(max_examples=300)
@given(SIGNED, SIGNED | POSITIVE, st.sampled_from(sorted(OPERATORS)), POSITIVE)
@example(["+", "T", -1], 1, "//", 8)
@example(["*", 8, "T", "B"], 8, "ceildiv", 8)
@example(["+", "T", 1, "B"], 1, "+", 1)
@example(["*", 128, ["max", 264, ["*", 3, "B"]]], 256, "ceildiv", 256)
def test_every_builder_gives_the_value_of_its_operator(
    left: Any, right: Any, name: str, by: int
) -> None:
    """Operands are in normal form or as a program has them, where a sum may have three parts."""
    other = by if name in ("//", "%", "ceildiv") else right
    for one, two in ((left, other), (rebuilt(left, SAME), rebuilt(other, SAME))):
        made = BUILDERS[name](one, two)
        agrees(made, lambda at: OPERATORS[name](evaluate(left, at), evaluate(other, at)))


@settings(max_examples=300)
@given(SIGNED, st.sampled_from([1, -1, 2, -3, 128]), POSITIVE)
def test_ways_to_round_up(size: Any, factor: int, by: int) -> None:
    scaled = times(factor, rebuilt(size, SAME))
    minus = times(-1, floordiv(times(-1, scaled), by))
    before = add(floordiv(add(scaled, -1), by), 1)
    for found in (minus, before, BUILDERS["ceildiv"](scaled, by)):
        agrees(found, lambda at: -(-factor * evaluate(size, at) // by))


@settings(max_examples=200)
@given(SIGNED, COUNTS, COUNTS)
def test_renaming_puts_other_sizes_in(expr: Any, first: Any, second: Any) -> None:
    found = rebuilt(expr, {"T": first, "B": second})
    inner = {"T": first, "B": second}
    agrees(found, lambda at: evaluate(expr, {n: evaluate(s, at) for n, s in inner.items()}))


@settings(max_examples=200)
@given(COUNTS)
def test_what_a_table_holds_is_not_negative_and_below_its_largest(expr: Any) -> None:
    found = checked(rebuilt(expr, SAME))
    divisors, highest = (divisor(found), divisor(expr)), most(found, {"T": 4096, "B": 128})
    for sizes in SAMPLES:
        value = evaluate(found, sizes)
        assert value == evaluate(expr, sizes)
        assert 0 <= value <= highest
        for by in divisors:
            assert value == 0 if by == 0 else value % by == 0


@settings(max_examples=200)
@given(SIGNED)
def test_a_table_holds_no_expression_that_can_be_negative(expr: Any) -> None:
    try:
        found = checked(rebuilt(expr, SAME))
    except CompileError:
        return
    assert all(evaluate(found, sizes) >= 0 for sizes in SAMPLES)


@settings(max_examples=300)
@given(SIGNED, st.integers(1, 40), st.integers(1, 6))
@example(["+", 64, ["*", -1, "T"]], 40, 1)
@example(["*", ["+", "T", -4], ["+", "B", -3]], 3, 2)
def test_no_size_is_above_what_memory_is_made_for(expr: Any, tokens: int, seqs: int) -> None:
    """All sizes, not the largest ones: `64 - T` and `T % 8` are larger elsewhere."""
    highest = most(expr, {"T": tokens, "B": seqs})
    sizes = product(range(1, tokens + 1), range(1, seqs + 1))
    assert max(evaluate(expr, {"T": t, "B": b}) for t, b in sizes) <= highest


@given(trees(st.integers(0, 9)))
def test_without_remainders_it_is_the_value_at_the_largest_sizes(expr: Any) -> None:
    if "%" not in repr(expr):
        highs = {"T": 512, "B": 8}
        assert most(expr, highs) == evaluate(expr, highs)


SHAPES = st.lists(st.tuples(st.integers(1, 5) | st.just("B"), st.integers(0, 40)), max_size=4)


@settings(max_examples=300)
@given(SHAPES)
@example([(4, 0)])
def test_an_extent_holds_every_element(drawn: list[tuple[Any, int]]) -> None:
    """Strides are any, or dense in some order of the dimensions."""
    shape = [size for size, _ in drawn]
    for stride in ([step for _, step in drawn], dense(shape), dense(shape[::-1])[::-1]):
        for sizes in SAMPLES[:3]:
            lengths, steps = ([evaluate(x, sizes) for x in part] for part in (shape, stride))
            last = sum((n - 1) * step for n, step in zip(lengths, steps, strict=True))
            assert evaluate(extent(shape, stride), sizes) >= last + 1
            if is_dense(shape, stride):
                assert evaluate(elements(shape), sizes) == reduce(lambda a, b: a * b, lengths, 1)
                assert last + 1 == evaluate(elements(shape), sizes)


@settings(max_examples=200)
@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_memory_lies_apart_at_every_size(sizes: list[Any]) -> None:
    memories = [
        Memory(f"m{i}", RegionKind.WORKSPACE, rebuilt(s, SAME)) for i, s in enumerate(sizes)
    ]
    offsets, total = stacked(memories)
    lives = lifetimes({m.name: m for m in memories}, [list(offsets)], {"T": 4096, "B": 128})
    room = {life.name: life.size for life in lives}
    for at in SAMPLES:
        end = 0
        for memory in memories:
            start, length = evaluate(offsets[memory.name], at), evaluate(memory.size, at)
            assert start == end
            assert start % ALIGNMENT == 0
            assert evaluate(aligned(memory.size), at) - length in range(ALIGNMENT)
            assert length <= room[memory.name]
            end = start + evaluate(aligned(memory.size), at)
        assert end == evaluate(total, at)


@pytest.mark.parametrize("size", [["+", "T", ["%", "T", 8]], ["%", ["*", 3, "T"], 1024]])
def test_workspace_has_room_for_a_remainder(size: Any) -> None:
    """4096 is a multiple of 8: at 4095 there are seven elements more."""
    memory = Memory("m", RegionKind.WORKSPACE, times(4, size))
    (life,) = lifetimes({"m": memory}, [["m"]], {"T": 4096})
    assert all(4 * evaluate(size, {"T": t}) <= life.size for t in range(1, 4097))


RANGES = {"T": (1, 64), "B": (2, 5)}


@given(SIGNED)
@example(["//", ["*", -784, "T"], 65535])
def test_a_value_lies_between_its_bounds_and_is_settled_only_where_it_is_one_number(
    expr: Any,
) -> None:
    ends, fixed = bounds(expr, RANGES), settled(expr, RANGES)
    sizes = [{"T": t, "B": b} for t, b in product((1, 2, 17, 63, 64), (2, 3, 5))]
    values = [evaluate(expr, one) for one in sizes]
    assert ends is not None
    assert ends[0] <= min(values) <= max(values) <= ends[1]
    assert all(evaluate(fixed, one) == value for one, value in zip(sizes, values, strict=True))
    assert fixed == expr or isinstance(fixed, int)


def test_a_grid_that_never_overflows_is_not_split() -> None:
    rows = ["*", -784, "T"]
    assert settled(["//", rows, 65535], RANGES) == -1
    assert settled(["//", rows, 65535], {"T": (1, 100)}) == ["//", rows, 65535]
