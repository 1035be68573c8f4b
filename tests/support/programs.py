"""Step programs made by hand, and hypothesis strategies for them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from vcc.engine.graphs.program import VERSION, Call, Program, Symbol, Value


def value(name: str, role: str, shape: Sequence[object], dtype: str = "float32") -> Value:
    """A value that stands for itself."""
    return Value(name, role, dtype, list(shape), name)


def chain(widths: Sequence[int]) -> Program:
    """x [T, w0] through one piece per further width, each into a buffer of its own."""
    values = [value("x", "input", ["T", widths[0]])]
    calls = []
    for index, width in enumerate(widths[1:]):
        values.append(value(f"b{index}", "buffer", ["T", width]))
        calls.append(Call("piece", f"p{index}", [values[-2].name, f"b{index}"], [f"b{index}"]))
    return Program(VERSION, [Symbol("T", 1, 64, "x", 0)], values, calls, [values[-1].name])


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, dict[str, int]]:
    """A program whose calls read any earlier buffers and write new ones, and the buffers' bytes."""
    count = draw(st.integers(1, 12))
    sizes = {f"b{i}": draw(st.integers(0, 700)) for i in range(count)}
    values = [value("x", "input", ["T"])]
    values += [value(name, "buffer", ["T"]) for name in sizes]
    calls, written = [], ["x"]
    for name in sizes:
        read = draw(st.lists(st.sampled_from(written), max_size=3, unique=True))
        calls.append(Call("piece", f"p{name}", [*read, name], [name]))
        written.append(name)
    outputs = draw(st.lists(st.sampled_from(written), min_size=1, max_size=3))
    return Program(VERSION, [Symbol("T", 1, 64, "x", 0)], values, calls, outputs), sizes
