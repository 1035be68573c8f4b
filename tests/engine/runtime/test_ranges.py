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
from vcc.engine.config.modes import GraphMode
from vcc.engine.config.sizes import token_ranges
from vcc.engine.config.types import DimRange
from vcc.engine.graphs.program import Program, Symbol, encode
from vcc.engine.runtime.by_size import chosen, with_code
from vcc.engine.runtime.descriptors import BatchDescriptor, Dispatch
from vcc.engine.runtime.ranges import read_programs


def program(low: int, high: int) -> Program:
    return msgspec.structs.replace(chain([4, 2]), symbols=[Symbol("T", low, high, "x", 0)])


def loaded(listed: list[str] | None = None, **programs: tuple[int, int]) -> Loaded:
    """Programs by name; the manifest lists them, or what is given."""
    blobs = {name[1:].replace("_", "-"): encode(program(*r)) for name, r in programs.items()}
    info = {"ranges": [{"sizes": name} for name in (blobs if listed is None else listed)]}
    return Loaded.of(manifest_of(info=info), {f"program/{k}": v for k, v in blobs.items()})


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
        ({"p8_1": (1, 8)}, "names no range"),
        ({"p1_8": (1, 8), "p8_64": (8, 64)}, "two programs for sizes 8 to 8"),
        ({"p1_64": (1, 64), "p4_8": (4, 8)}, "two programs for sizes 4 to 8"),
    ],
)
def test_gaps_overlaps_and_wrong_names_are_refused(
    programs: dict[str, tuple[int, int]], word: str
) -> None:
    with pytest.raises(IntegrityError, match=word):
        read(**programs)


@pytest.mark.parametrize("listed", [[], ["1-8"], ["1-8", "9-64", "16-16"], ["x"]])
def test_ranges_that_are_not_those_of_the_manifest_are_refused(listed: list[str]) -> None:
    found = loaded(listed, p1_8=(1, 8), p9_64=(9, 64))
    with pytest.raises(IntegrityError, match="not those of its manifest"):
        read_programs(found, lambda symbol: True)


def test_a_program_for_every_size_beside_one_for_some_is_refused() -> None:
    blobs = {"program": encode(program(1, 64)), "program/1-64": encode(program(1, 64))}
    both = Loaded.of(manifest_of(info={"ranges": [{"sizes": "1-64"}]}), blobs)
    with pytest.raises(IntegrityError, match="a program for every size"):
        read_programs(both, lambda symbol: True)


def test_a_range_of_one_size_is_no_exact_one() -> None:
    assert read(p1_1=(1, 1), p2_64=(2, 64), p9_9=(9, 9)) == [(1, 1), (2, 64), (9, 9)]


@pytest.mark.parametrize(
    ("code", "said"), [((1, 8), "exact size; code for 1 to 8 tokens"), ((4, 4), "for 4 tokens")]
)
def test_a_reason_names_the_code_where_there_are_several(code: tuple[int, int], said: str) -> None:
    decision = Dispatch(GraphMode.FULL, BatchDescriptor(4), "exact size")
    assert with_code(decision, Code(1, 8), [Code(1, 8)]) is decision
    found = with_code(decision, Code(*code), [Code(1, 8), Code(4, 4)])
    assert found.reason.endswith(said)


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
