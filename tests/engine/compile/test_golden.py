"""Making goldens: a right library passes, a wrong one is refused, and some pieces have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.toys import rows, traced
from torch import Tensor, nn
from torch.fx import Interpreter

from vcc.cache.errors import CompileError
from vcc.engine.compile.golden import BUDGET, Skipped, make_golden
from vcc.engine.graphs.drawn import draw_arguments, poison
from vcc.engine.graphs.golden import Golden, exceeds
from vcc.engine.partition.split import split
from vcc.engine.types import Piece

Model = Callable[..., Any]
OPS = ("toy::mix",)


def piece(model: Model, *, dtype: torch.dtype = torch.float32, **parts: Any) -> Piece:
    """The last piece of `model(module, x)`."""
    graph = traced(model, {"x": rows().to(dtype)}, {"x": {0: "T"}}, **parts)
    return split(graph, OPS, ()).unique[-1]


def eager(of: Piece) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """The piece's graph, standing in for its library."""

    def run(arguments: Sequence[Tensor]) -> list[Tensor]:
        Interpreter(of.graph).run(*arguments)
        return []

    return run


def golden(of: Piece) -> Golden:
    made = make_golden(of, eager(of))
    assert isinstance(made, Golden)
    return made


def holds(of: Piece, made: Golden) -> bool:
    """What a boot does: draw again, run, compare."""
    read = Golden.decode(made.encode())
    arguments = draw_arguments(of.id, read.arguments, read.below)
    outs = arguments[len(arguments) - of.outputs :]
    poison(outs)
    eager(of)(arguments)
    results = zip(outs, read.references, read.bounds, strict=True)
    return all(exceeds(o.float().numpy(), r, b) is None for o, r, b in results)


def linear(m: Any, x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x @ m.weight) * m.scale


def weights(dtype: torch.dtype = torch.float32) -> dict[str, nn.Parameter]:
    shapes = {"weight": (4, 4), "scale": (4,)}
    return {n: nn.Parameter(torch.zeros(s, dtype=dtype), False) for n, s in shapes.items()}


MODELS: dict[str, tuple[Model, bool]] = {
    "linear": (linear, True),
    "two results": (lambda m, x: (x * 2, x.sum(0)), False),
    "an integer result": (lambda m, x: (x * 4).to(torch.int32), False),
    "a condition": (lambda m, x: x > 0.5, False),
    "a write to an input": (lambda m, x: torch.ops.toy.mix(x).mul_(3).add_(1), False),
    "a write to an input through a view": (
        lambda m, x: (y := torch.ops.toy.mix(x), y[:, :2].mul_(3), y + 1)[-1],
        False,
    ),
    "a write to a copy": (lambda m, x: x.clone().add_(1) * x, False),
    "a logarithm": (lambda m, x: x.log(), False),
    "a division by zero": (lambda m, x: x / (x * 0), False),
    "a size": (lambda m, x: x * (1 / x.shape[0]) + torch.arange(x.shape[0])[:, None], False),
    "a cast": (lambda m, x: (x.to(torch.bfloat16) * 2).to(torch.float32), False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_a_right_library_meets_its_golden_when_built_and_at_boot(
    name: str, dtype: torch.dtype
) -> None:
    model, weighted = MODELS[name]
    one = piece(model, dtype=dtype, **(weights(dtype) if weighted else {}))
    assert holds(one, golden(one))


def test_the_reference_is_of_fp32_whatever_the_type_is() -> None:
    """Eager in bf16 rounds every step; the reference does not."""
    one = piece(linear, dtype=torch.bfloat16, **weights(torch.bfloat16))
    made = golden(one)
    x, weight, scale = (a.float() for a in draw_arguments(one.id, made.arguments, made.below)[:3])
    exact = torch.nn.functional.gelu(x.double() @ weight.double()) * scale.double()
    assert np.allclose(made.references[0], exact.numpy(), atol=1e-6)


def test_the_bound_is_tight_in_fp32_and_of_the_type_below() -> None:
    wide = golden(piece(linear, **weights())).bounds[0]
    narrow = golden(piece(linear, dtype=torch.bfloat16, **weights(torch.bfloat16))).bounds[0]
    assert wide.maximum < 1e-3 < narrow.maximum < 0.2


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled": lambda out: out * 1.01,
    "shifted": lambda out: out.roll(1, 0),
    "one element": lambda out: torch.where(out == out[1, 2], 9.0, out),
    "not a number": lambda out: torch.where(out == out[1, 2], torch.nan, out),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_library_is_refused(name: str) -> None:
    one = piece(linear, **weights())

    def run(arguments: Sequence[Tensor]) -> list[Tensor]:
        eager(one)(arguments)
        arguments[-1].copy_(WRONG[name](arguments[-1]))
        return []

    with pytest.raises(CompileError, match="was compiled wrongly") as caught:
        make_golden(one, run)
    assert "output 0" in caught.value.why
    assert "--keep" in caught.value.hint


def test_a_library_that_writes_nothing_is_refused() -> None:
    one = piece(linear, **weights())
    with pytest.raises(CompileError, match="not finite"):
        make_golden(one, lambda arguments: [])


def test_drawn_arguments_stay_as_drawn_while_references_are_made() -> None:
    """The library must see what the reference saw, though the graph writes its input."""
    one = piece(lambda m, x: torch.ops.toy.mix(x).mul_(3))
    seen: list[Tensor] = []

    def run(arguments: Sequence[Tensor]) -> list[Tensor]:
        seen.append(arguments[0].clone())
        return eager(one)(arguments)

    made = make_golden(one, run)
    assert isinstance(made, Golden)
    drawn = draw_arguments(one.id, made.arguments, made.below)[0]
    assert torch.equal(seen[0], drawn)


def test_sizes_are_small_different_and_inside_their_ranges() -> None:
    def model(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    arguments = {"x": rows(3, 7), "y": rows(7, 9)}
    axes = {"x": {0: "A", 1: "B"}, "y": {0: "B", 1: "C"}}
    graph = traced(model, arguments, axes, {"A": (1, 4), "B": (7, 50), "C": (1, 64)})
    (one,) = split(graph, (), ()).unique
    shapes = [argument.shape for argument in golden(one).arguments]
    assert shapes == [(4, 7), (7, 2), (4, 2)]


SKIPPED: dict[str, tuple[Model, str]] = {
    "chance": (lambda m, x: x + torch.rand_like(x), "random"),
    "dropout": (lambda m, x: torch.nn.functional.dropout(x, 0.5, True), "random"),
    "opaque": (lambda m, x: (torch.ops.toy.write(x, m.cache), x + m.cache)[1], "cannot be drawn"),
    "table": (lambda m, x: m.table[(x * 1000).to(torch.int64)], "refuses drawn arguments"),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_piece_that_drawn_values_cannot_check_has_none_and_says_why(name: str) -> None:
    model, why = SKIPPED[name]
    one = piece(model, cache=torch.zeros(4), table=torch.zeros(4))
    made = make_golden(one, eager(one))
    assert isinstance(made, Skipped)
    assert why in made.reason


def test_a_piece_above_the_memory_budget_has_none() -> None:
    width = BUDGET // 8
    weight = nn.Parameter(torch.empty(4, width // 4), False)
    one = piece(lambda m, x: x @ m.weight, weight=weight)
    made = make_golden(one, eager(one))
    assert isinstance(made, Skipped)
    assert "MiB" in made.reason
