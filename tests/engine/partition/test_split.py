"""Cutting at splitting ops: which parts there are, what crosses a cut, and equal results."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from support.interpret import same_as_model
from support.toys import calls_of, code_of, names_in, rows, traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.graphs.program import encode
from vcc.engine.graphs.program_check import decode
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.types import Pieces, Traced

toy = torch.ops.toy
TOKENS = {"x": {0: "T"}}
ALL = ("toy::attend", "toy::write", "toy::mix", "toy::pair", "toy::triple", "toy::listed")


def cut(function: Any, ops: tuple[str, ...] = ALL, *, passes: bool = False) -> Pieces:
    """Trace `function(module, x)` with T in [1, 64], cut it, check its results at three sizes."""
    graph = traced(function, {"x": rows()}, TOKENS)
    if passes:
        apply(graph, PASSES)
    pieces = split(graph, ops, ())
    check(function, pieces, graph)
    return pieces


def check(function: Any, pieces: Pieces, graph: Traced) -> None:
    assert decode(encode(pieces.program)) == pieces.program
    for tokens in (1, 5, 64):
        same_as_model(function, pieces, graph, {"x": torch.randn(tokens, 4)})


def attention(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    toy.attend(x * 2, x + 1, out)
    return out + x


def test_p1_two_attention_calls_give_three_pieces_and_two_ops() -> None:
    """P1: 5 parts, 2 splitting, 3 compiled; the output equals the original's."""
    pieces = cut(lambda m, x: attention(attention(x)).relu())
    attend = "toy::attend.default"
    assert calls_of(pieces.program) == ["piece", attend, "piece", attend, "piece"]


def test_p3_a_tuple_stays_with_its_producer() -> None:
    """P3: an op that returns a tuple, getitems, then a splitting op that uses one item."""

    def model(m: Any, x: Tensor) -> Tensor:
        first, second = torch.ops.aten.split.Tensor(x, 2, 1)
        out = torch.empty_like(first)
        toy.attend(first, second, out)
        return second + out

    pieces = cut(model)
    # Every value of a program is one tensor; the second half crosses as a buffer of its own.
    assert [len(call.outs) for call in pieces.program.calls] == [2, 1, 1]


def test_p4_without_a_splitting_op_there_is_one_piece() -> None:
    """P4: 1 part."""
    pieces = cut(lambda m, x: (x * 2).relu() + x)
    assert calls_of(pieces.program) == ["piece"]
    assert cut(lambda m, x: attention(x), ops=()).calls == {pieces_id(attention): 1}


def pieces_id(function: Any) -> str:
    graph = traced(lambda m, x: function(x), {"x": rows()}, TOKENS)
    return split(graph, (), ()).unique[0].id


def test_p5_no_size_crosses_a_cut() -> None:
    """P5: sizes are rebuilt inside the piece from a tensor; static dims become literals."""

    def model(m: Any, x: Tensor) -> Tensor:
        tokens, width = x.shape
        y = toy.mix(x * 2)
        return y.reshape(tokens * width) + torch.arange(tokens * width)

    pieces = cut(model)
    for call in pieces.program.calls:
        assert names_in(call.args) == call.args, "only tensors are handed to pieces"
    nodes = list(pieces.unique[-1].graph.graph.nodes)
    read = [node for node in nodes if node.target is torch.ops.aten.sym_size.int]
    assert [node.args[1] for node in read] == [0], "T is read from a tensor, 4 is a literal"
    scaled = [node.args for node in nodes if node.target is operator.mul]
    assert scaled
    assert all(4 in args for args in scaled)


def test_p5_a_piece_without_a_tensor_of_that_size_takes_the_step_input() -> None:
    """P5: where none of a piece's tensors has the size, the input that carries it is added."""

    def model(m: Any, x: Tensor) -> Tensor:
        total = toy.mix(x.sum(0, keepdim=True))
        return total.expand(x.shape[0], 4) * 1.5

    pieces = cut(model)
    assert "x" in pieces.program.calls[-1].args


def test_p6_a_part_that_only_allocates_disappears() -> None:
    """P6: the allocation becomes a buffer of the step."""

    def model(m: Any, x: Tensor) -> Tensor:
        y = toy.mix(x)
        out = torch.empty_like(y)
        other = torch.empty_like(out)  # takes sizes alone: the first use is attention's
        toy.attend(y, y, out)
        toy.attend(y, out, other)
        return toy.mix(other)

    pieces = cut(model)
    assert "piece" not in calls_of(pieces.program)
    assert not pieces.unique


def test_a_buffer_made_like_a_tensor_does_not_carry_the_tensor_out_of_its_piece() -> None:
    """Only sizes are taken from it, so no copy of it is made for anyone."""

    def model(m: Any, x: Tensor) -> Tensor:
        inner = x * 2
        out = inner.new_empty(inner.shape)
        seen = inner + 1
        toy.attend(seen, seen, out)
        return toy.mix(out)

    pieces = cut(model)
    first, *rest = pieces.program.calls
    assert first.kind == "piece"
    assert len(first.outs) == 1
    assert first.outs[0] in rest[0].args


def test_memory_that_only_a_later_piece_writes_is_made_in_that_piece() -> None:
    """No golden could hold a piece to what nobody has written."""

    def model(m: Any, x: Tensor) -> Tensor:
        inner = x + 1
        out = torch.empty_like(inner)
        seen = toy.mix(inner)
        toy.attend(seen, seen, out)
        return toy.mix(out) + out

    pieces = cut(model, ops=("toy::mix",))
    assert calls_of(pieces.program) == ["piece", "toy::mix.default"] * 2 + ["piece"]
    assert len(pieces.program.calls[0].outs) == 1
    assert [piece.graph.code.count("empty_like.default(") for piece in pieces.unique] == [0, 1, 0]


def test_a_number_computed_from_a_size_keeps_its_fraction() -> None:
    """A float or a condition made of sizes is recomputed inside the piece, not cut to an int."""
    mean = cut(lambda m, x: toy.mix(x) * (1 / x.shape[0]))
    root = cut(lambda m, x: toy.mix(x) * (x.shape[0] ** -0.5))
    assert "<built-in function truediv>" in code_of(mean)
    assert mean.unique[0].id != root.unique[0].id


@pytest.mark.parametrize("passes", [False, True])
def test_a_splitting_op_may_return_a_tensor_or_a_tuple(passes: bool) -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        y, z = toy.pair(toy.mix(x + 1))
        return z * 2 + y

    pieces = cut(model, passes=passes)
    assert [call.returns for call in pieces.program.calls] == [False, True, True, False]


@pytest.mark.parametrize(("used", "names"), [((0,), 3), ((1,), 3), ((2, 0), 3), ((0, 1), 3)])
def test_items_of_a_tuple_that_nobody_reads(used: tuple[int, ...], names: int) -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        items = toy.triple(x + 1)
        return sum((items[i] * (i + 2) for i in used), start=x)

    pieces = cut(model, passes=True)
    assert len(pieces.program.calls[1].outs) == names


def test_a_result_that_nobody_reads_costs_no_buffer() -> None:
    pieces = cut(lambda m, x: (toy.mix(x), x + 1)[1])
    assert pieces.program.calls[0].outs == []


def test_a_bare_name_matches_every_overload_and_a_full_name_one() -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        return toy.mix(toy.mix.scaled(toy.mix(x) + 1, 2.0) + 1) + 1

    assert calls_of(cut(model, ops=("toy::mix",)).program).count("piece") == 3
    scaled = calls_of(cut(model, ops=("toy::mix.scaled",)).program)
    assert scaled == ["piece", "toy::mix.scaled", "piece"]
    default = calls_of(cut(model, ops=("toy::mix.default",)).program)
    assert default.count("toy::mix.default") == 2
    assert "toy::mix.scaled" not in default


def test_literals_reach_the_op_with_defaults_filled_in() -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        toy.attend(x, x, out)
        toy.attend(x, out, out, 0.25)
        return out

    pieces = cut(model)
    assert [call.args[-1] for call in pieces.program.calls] == [[1.0], [0.25]]


def test_in_place_writes_across_cuts() -> None:
    """A residual that is updated in place in every part, as modules written by hand do."""

    def model(m: Any, x: Tensor) -> Tensor:
        h = x * 2
        h += toy.mix(h)
        h += toy.mix(h)
        return h.mul_(3)

    pieces = cut(model)
    assert calls_of(pieces.program).count("piece") == 3


def test_a_cache_that_an_op_writes_keeps_what_was_written() -> None:
    def model(m: Any, x: Tensor, cache: Tensor) -> Tensor:
        toy.write(x * 2, cache)
        y = x + cache
        toy.write(y, cache)
        return y * cache

    arguments = {"x": rows(), "cache": torch.ones(4)}
    graph = traced(model, arguments, TOKENS)
    pieces = split(graph, ALL, ())
    same_as_model(model, pieces, graph, {"x": torch.randn(3, 4), "cache": torch.randn(4)})


def test_outputs_may_be_inputs_twins_and_splitting_results() -> None:
    cut(lambda m, x: (x, toy.mix(x), (y := x * 2), y))


def test_parameters_and_constants_are_inputs_of_pieces() -> None:
    def model(m: Any, x: Tensor) -> Tensor:
        return toy.mix(x @ m.weight) * m.table + torch.tensor([1.0, 2.0, 3.0, 4.0])

    parts = {
        "weight": torch.nn.Parameter(torch.randn(4, 4), requires_grad=False),
        "table": torch.arange(4.0),
    }
    graph = traced(model, {"x": rows()}, TOKENS, **parts)
    pieces = split(graph, ALL, ())
    roles = {v.target: v.role for v in pieces.program.values if v.role in ("weight", "constant")}
    assert roles == {"weight": "weight", "table": "constant", "lifted_tensor_0": "constant"}
    owner = torch.nn.Module()
    owner.weight, owner.table = parts["weight"], parts["table"]
    for piece in pieces.unique:
        assert not [n for n in piece.graph.graph.nodes if n.op == "get_attr"]
    same_as_model(model, pieces, graph, {"x": torch.randn(3, 4)}, owner)


def test_products_of_sizes_are_sizes() -> None:
    cut(lambda m, x: toy.mix((x @ x.t()).flatten()[:, None]) * 2)


def test_equal_parts_are_kept_once() -> None:
    pieces = cut(lambda m, x: attention(attention(attention(attention(x)))) + 1)
    assert sorted(pieces.calls.values()) == [1, 1, 3]
    assert len(pieces.unique) == 3


REFUSED = {
    "keyword": (lambda m, x: toy.named(x, scale=3.0), "scale by keyword only"),
    "list": (lambda m, x: toy.listed(x, [1, 2]), r"takes \[1, 2\]"),
    "size": (lambda m, x: toy.sized(x, x.shape[0] * 2), "takes mul"),
    "complex": (lambda m, x: (x * 2j, toy.mix(x)), "element type torch.complex64"),
    "number": (lambda m, x: (toy.mix(x), 3), "returns 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_step_program_cannot_hold_is_named(case: str) -> None:
    function, word = REFUSED[case]
    graph = traced(function, {"x": rows()}, TOKENS)
    with pytest.raises(CompileError, match=word) as caught:
        split(graph, (*ALL, "toy::named", "toy::sized"), ())
    assert caught.value.hint


def test_a_default_given_by_keyword_is_no_keyword() -> None:
    cut(lambda m, x: toy.named(x + 1, scale=2.0) * 2, ops=("toy::named",))
