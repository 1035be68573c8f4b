"""Programs of ranges: read with their names checked, without gaps, the exact size first."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import chain
from support.stores import manifest_of

from vcc.cache.errors import IntegrityError
from vcc.cache.loaded import Loaded
from vcc.engine.config.sizes import token_ranges
from vcc.engine.config.types import DimRange
from vcc.engine.graphs.program import Program, Symbol, encode
from vcc.engine.runtime.ranges import chosen, read_programs


def program(low: int, high: int) -> Program:
    return msgspec.structs.replace(chain([4, 2]), symbols=[Symbol("T", low, high, "x", 0)])


def loaded(**programs: tuple[int, int]) -> Loaded:
    blobs = {name.replace("_", "-"): encode(program(*r)) for name, r in programs.items()}
    return Loaded.of(manifest_of(), {f"program/{k[1:]}": v for k, v in blobs.items()})


def read(**programs: tuple[int, int]) -> list[tuple[int, int]]:
    return [(one.low, one.high) for one in read_programs(loaded(**programs), lambda s: True)]


def test_one_program_serves_every_size() -> None:
    one = Loaded.of(manifest_of(), {"program": encode(program(1, 64))})
    (found,) = read_programs(one, lambda symbol: True)
    assert chosen([found], 64).program.symbols[0].high == 64


def test_ranges_come_before_exact_sizes() -> None:
    assert read(p16_16=(16, 16), p9_64=(9, 64), p1_8=(1, 8)) == [(1, 8), (9, 64), (16, 16)]


@pytest.mark.parametrize(
    ("programs", "word"),
    [
        ({"p1_8": (1, 8), "p10_64": (10, 64)}, "no program for sizes 9 to 9"),
        ({"p1_8": (1, 9)}, "of other sizes"),
        ({"p01_8": (1, 8)}, "names no range"),
        ({"px": (1, 8)}, "names no range"),
    ],
)
def test_a_gap_and_a_wrong_name_are_refused(
    programs: dict[str, tuple[int, int]], word: str
) -> None:
    with pytest.raises(IntegrityError, match=word):
        read(**programs)


@dataclass(frozen=True)
class Code:
    low: int
    high: int


@given(
    st.lists(st.integers(1, 100), max_size=5),
    st.lists(st.integers(1, 100), max_size=5),
    st.integers(1, 100),
)
def test_p9_a_call_takes_the_exact_size_first(ends: list[int], exact: list[int], size: int) -> None:
    """P9: a call with 16 uses the exact one; every other the range that holds it."""
    codes = [Code(r.min, r.max) for r in token_ranges(ends, exact, DimRange(1, 100))]
    found = chosen(codes, size)
    assert found.low <= size <= found.high
    assert (found.low == found.high) or size not in exact


def test_a_size_without_code_is_refused() -> None:
    with pytest.raises(IntegrityError, match="no code for a size of 9"):
        chosen([Code(1, 8)], 9)
