"""Donated buffers: what dies in a piece is where its results go; results and pieces stay equal."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.decoders import spec, traced_decoder
from support.interpret import same_as_model
from support.toys import rows, traced
from torch import Tensor

from vcc.engine.config.target import Target
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig
from vcc.engine.graphs.expr import evaluate
from vcc.engine.graphs.packing import pack
from vcc.engine.partition.split import split
from vcc.engine.passes.apply import apply
from vcc.engine.passes.base import PassContext
from vcc.engine.passes.donate import DONATE_BUFFERS
from vcc.engine.types import Pieces, Traced

toy = torch.ops.toy
CUTS = ("toy::mix", "toy::write", "toy::attend")
Model = Callable[..., Any]


def context(*cuts: str) -> PassContext:
    return PassContext(CompilationConfig(splitting_ops=cuts))


def both(graph: Traced, *cuts: str) -> tuple[Pieces, Pieces, int]:
    """Pieces without and with the pass, and how often it fired."""
    before = Traced(copy.deepcopy(graph.graph), graph.placeholders, graph.ranges, graph.constants)
    plain = split(before, cuts, ())
    report = apply(graph, [DONATE_BUFFERS], context(*cuts)).reports[0]
    return plain, split(graph, cuts, ()), report.matches


def after(model: Model, inputs: Mapping[str, Tensor]) -> tuple[Pieces, Pieces, int]:
    """As `both`, with the proof that a step computes what the model does."""
    graph = traced(model, {name: one.clone() for name, one in inputs.items()}, {"x": {0: "T"}})
    plain, donated, matches = both(graph, *CUTS)
    for tokens in (1, 5, 64):
        given = {
            name: torch.randn(tokens, 4) if name == "x" else one.clone()
            for name, one in inputs.items()
        }
        same_as_model(model, donated, graph, given)
        same_as_model(model, plain, graph, given)
    return plain, donated, matches


def residual(m: Any, x: Tensor) -> Any:
    """Three layers around a cut; the sum of all before is carried along."""
    carried = x * 2
    for _ in range(3):
        carried = carried + toy.mix(carried.relu())
    return carried.exp()


def buffers(pieces: Pieces) -> int:
    return len(pieces.program.of_role("buffer"))


def test_a_carried_sum_stays_in_one_buffer_over_all_layers() -> None:
    plain, donated, matches = after(residual, {"x": rows()})
    assert matches > 0
    assert buffers(donated) == buffers(plain) - matches
    assert len(donated.unique) == len(plain.unique), "equal pieces stay equal"


KEPT: dict[str, Model] = {
    "nothing dies": lambda m, x: (y := x * 2, z := toy.mix(y.relu()), toy.mix(z + y) + y)[2],
    "an input dies": lambda m, x: toy.mix(x.relu() + 1).cos(),
    "another size": lambda m, x: toy.mix(toy.mix(x * 2)[:, :2] + 1).cos(),
    "another type": lambda m, x: toy.mix(toy.mix(x * 2).double()).float(),
    "no cut": lambda m, x: (x * 2).relu().exp(),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_buffer_that_is_needed_or_does_not_fit_is_left(name: str) -> None:
    plain, donated, matches = after(KEPT[name], {"x": rows()})
    if name != "nothing dies":
        assert matches == 0
    assert buffers(donated) == buffers(plain) - matches


def test_a_written_buffer_is_left() -> None:
    """A cache belongs to the caller, and what is written between pieces stays where it is."""

    def model(m: Any, x: Tensor, cache: Tensor) -> Any:
        y = x * 2
        toy.write(y, cache)
        z = y + cache
        toy.write(z, cache)
        return z * cache

    plain, donated, matches = after(model, {"x": rows(), "cache": torch.ones(4)})
    assert buffers(donated) == buffers(plain) - matches


def test_it_runs_on_the_cpu_alone() -> None:
    """On a GPU a piece's results stay where they are made, and memory is packed there."""
    graph = traced(residual, {"x": rows()}, {"x": {0: "T"}})
    gpu = PassContext(CompilationConfig(splitting_ops=CUTS), Target.parse("sm_90"))
    assert "is not cpu" in apply(graph, [DONATE_BUFFERS], gpu).reports[0].skipped


def workspace(pieces: Pieces) -> int:
    """Bytes of the buffers of a step at the largest sizes."""
    most = {symbol.name: symbol.high for symbol in pieces.program.symbols}
    sizes = {
        value.name: 4 * math.prod(evaluate(one, most) for one in value.shape)
        for value in pieces.program.of_role("buffer")
    }
    return pack(pieces.program, sizes).size


def test_a_decoder_needs_a_third_less_workspace_and_no_more_pieces() -> None:
    graph = traced_decoder(spec("llama", 4))
    plain, donated, matches = both(graph, *DEFAULT_SPLITTING_OPS)
    assert matches == 2 * (len(plain.program.calls) // 3 - 1), "residual and query, each seam"
    assert len(donated.unique) == len(plain.unique)
    assert workspace(donated) < 0.75 * workspace(plain)


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mix": lambda y, kept: toy.mix(y),
    "work": lambda y, kept: y * 2 + 1,
    "carry": lambda y, kept: y + kept,
    "halve": lambda y, kept: torch.cat([y[:, 2:], y[:, :2]], 1),
    "view": lambda y, kept: y.view(-1).view(-1, 4),
    "write": lambda y, kept: y.mul_(1.5),
}


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=3, max_size=9))
def test_any_chain_of_cuts_gives_equal_results(names: list[str]) -> None:
    def model(m: Any, x: Tensor) -> Any:
        kept = y = x * 1
        for place, name in enumerate(names):
            y = STEPS[name](y, kept)
            kept = y if place % 3 == 1 else kept
        return y + kept

    after(model, {"x": rows()})
