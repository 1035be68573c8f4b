"""Static packing: no two live buffers overlap, and the workspace is no larger than it must be."""

from __future__ import annotations

from hypothesis import given
from support.programs import chain, programs, value

from vcc.engine.graphs.packing import ALIGNMENT, Lifetime, lifetimes, pack
from vcc.engine.graphs.program import Call, Program


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@given(programs())
def test_no_two_live_buffers_overlap(drawn: tuple[Program, dict[str, int]]) -> None:
    program, sizes = drawn
    placement = pack(program, sizes)
    lives = lifetimes(program, sizes)
    assert set(placement.offsets) == {life.name for life in lives}
    for index, one in enumerate(lives):
        for other in lives[index + 1 :]:
            together = one.first <= other.last and other.first <= one.last
            assert not together or apart(one, other, placement.offsets), (one, other)


def apart(one: Lifetime, other: Lifetime, offsets: dict[str, int]) -> bool:
    start, begin = offsets[one.name], offsets[other.name]
    empty = one.size == 0 or other.size == 0
    return empty or start + one.size <= begin or begin + other.size <= start


@given(programs())
def test_the_workspace_lies_between_the_fullest_moment_and_the_sum(
    drawn: tuple[Program, dict[str, int]],
) -> None:
    program, sizes = drawn
    placement, lives = pack(program, sizes), lifetimes(program, sizes)
    moments = range(len(program.calls) + 1)
    fullest = max(sum(f.size for f in lives if f.first <= m <= f.last) for m in moments)
    assert fullest <= placement.size <= sum(aligned(size) for size in sizes.values())
    for life in lives:
        assert placement.offsets[life.name] % ALIGNMENT == 0
        assert placement.offsets[life.name] + life.size <= placement.size


@given(programs())
def test_packing_depends_on_its_arguments_alone(drawn: tuple[Program, dict[str, int]]) -> None:
    program, sizes = drawn
    assert pack(program, sizes) == pack(program, dict(reversed(sizes.items())))


def test_a_chain_needs_two_buffers_however_long_it_is() -> None:
    program = chain([4] * 40)
    sizes = {v.name: 1024 for v in program.of_role("buffer")}
    assert pack(program, sizes).size == 2048


def test_a_lifetime_runs_from_the_first_to_the_last_use() -> None:
    program = chain([4, 4, 4, 4])
    found = lifetimes(program, {"b0": 1, "b1": 1, "b2": 1})
    lives = {life.name: (life.first, life.last) for life in found}
    assert lives == {"b0": (0, 1), "b1": (1, 2), "b2": (2, 3)}


def test_an_output_lives_until_after_the_last_call() -> None:
    values = [value("x", "input", [4]), value("a", "buffer", [4]), value("b", "buffer", [4])]
    calls = [Call("piece", "p", ["x", "a"], ["a"]), Call("piece", "p", ["x", "b"], ["b"])]
    program = Program(1, [], values, calls, ["a"])
    offsets = pack(program, {"a": 64, "b": 64}).offsets
    assert offsets["a"] != offsets["b"]


def test_a_buffer_that_no_call_names_takes_no_room() -> None:
    program = chain([4, 4])
    assert pack(program, {"b0": 64, "unused": 1 << 20}).size == 64


def test_nothing_to_place() -> None:
    assert pack(chain([4]), {}).size == 0
