"""A piece gets for each output the memory that all of its calls can do with."""

from __future__ import annotations

import pytest

from vcc.engine.graphs.planner.outputs import giving_results, taken_as_rows, written_again
from vcc.engine.graphs.program import VERSION, Call, Program
from vcc.engine.ops.register import load_ops

WRITE = "vcc::kv_write.default"


@pytest.fixture(autouse=True)
def _operators() -> None:
    load_ops()


def piece(*outs: str, target: str = "p", args: tuple[str, ...] = ()) -> Call:
    return Call("piece", target, [*args, *outs], list(outs))


def write(k: str, v: str) -> Call:
    return Call("op", WRITE, [k, v, "slots", "cache"], ["cache"])


def program(*calls: Call, outputs: tuple[str, ...] = ()) -> Program:
    return Program(VERSION, [], [], list(calls), list(outputs))


def test_an_output_that_an_operator_writes_in_one_call_is_written_again_in_all() -> None:
    changes = Call("op", "vcc::changes", ["b"], ["b"])
    first, second = program(piece("a", "b"), changes), program(piece("c", "d"))
    assert written_again([second, first]) == {"p": {1}}
    assert written_again([second]) == {"p": frozenset()}


def test_a_piece_that_writes_a_value_again_is_no_operator() -> None:
    assert written_again([program(piece("a"), piece("a", target="q"))]) == {"p": set(), "q": set()}


READERS = {
    "rows of the write": (write("a", "b"), (), {0, 1}),
    "another piece": (piece("x", target="q", args=("b",)), (), {0}),
    "another argument": (Call("op", WRITE, ["a", "b", "b", "cache"], ["cache"]), (), {0}),
    "the step itself": (write("a", "b"), ("a",), {1}),
}


@pytest.mark.parametrize("case", READERS)
def test_an_output_that_nobody_reads_densely_may_lie_in_rows(case: str) -> None:
    reader, outputs, rows = READERS[case]
    assert taken_as_rows([program(piece("a", "b"), reader, outputs=outputs)])["p"] == rows


def test_an_output_lies_in_rows_only_if_every_call_allows_it() -> None:
    apart = program(piece("c", "d"), piece("x", target="q", args=("c",)))
    assert taken_as_rows([program(piece("a", "b"), write("a", "b")), apart])["p"] == {1}


def test_pieces_that_give_a_result_are_known() -> None:
    calls = [piece("y", target="inner", args=("x",)), piece("z", target="outer", args=("y",))]
    assert giving_results([Program(VERSION, [], [], calls, ["z"])]) == {"outer"}
    assert giving_results([Program(VERSION, [], [], calls, ["y", "z"])]) == {"inner", "outer"}
