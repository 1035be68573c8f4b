"""Pieces with equal identity compile to equal source, so one piece can stand for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from support.decoders import decoder_pieces
from support.generated import source_of
from support.toys import rows, traced
from torch import Tensor, nn

from vcc.engine.config.inductor_options import option_pairs
from vcc.engine.partition.canonical import fake_arguments
from vcc.engine.partition.split import split
from vcc.engine.types import Piece

Step = Callable[[Any, Tensor], Tensor]

STEPS: dict[str, Step] = {
    "scale": lambda m, x: x * 2,
    "scale by a float": lambda m, x: x * 2.0,
    "flag": lambda m, x: x * True,
    "relu": lambda m, x: x.relu(),
    "softmax": lambda m, x: x.softmax(-1),
    "mean over rows": lambda m, x: x.mean(0, keepdim=True) + x,
    "matrix": lambda m, x: x @ m.weight,
    "root of a size": lambda m, x: x * (x.shape[0] ** -0.5),
    "positions": lambda m, x: x + torch.arange(x.shape[0])[:, None],
    "in place": lambda m, x: x.clone().add_(1),
    "opaque": lambda m, x: torch.ops.toy.mix(x),
    "opaque scaled": lambda m, x: torch.ops.toy.mix.scaled(x, 3.0),
    "branch": lambda m, x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 3, (x,)),
    "other branch": lambda m, x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 4, (x,)),
}


@dataclass(frozen=True)
class Recipe:
    """A small piece: its steps, its size range and example, and the compiler's options."""

    steps: tuple[str, ...]
    high: int
    hint: int
    dtype: torch.dtype
    options: tuple[tuple[str, object], ...]


RECIPES = st.builds(
    Recipe,
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3).map(tuple),
    st.sampled_from([8, 64, 4096]),
    st.sampled_from([2, 6]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([(), (("cpp.simdlen", 512),), (("cpp.min_chunk_size", 1),)]),
)


def by_one_name(m: Any, steps: tuple[str, ...], x: Tensor) -> Tensor:
    for name in steps:
        x = STEPS[name](m, x)
    return x


def plain(recipe: Recipe) -> Piece:
    """The recipe's piece, traced as it stands."""

    def model(m: Any, x: Tensor) -> Tensor:
        return by_one_name(m, recipe.steps, x)

    weight = nn.Parameter(torch.randn(4, 4).to(recipe.dtype), requires_grad=False)
    example = rows(recipe.hint).to(recipe.dtype)
    graph = traced(model, {"x": example}, {"x": {0: "T"}}, {"T": (1, recipe.high)}, weight=weight)
    (piece,) = split(graph, (), option_pairs(dict(recipe.options))).unique
    return piece


def disguised(recipe: Recipe) -> Piece:
    """The same code as the second piece of another trace, under other names of everything."""

    def model(m: Any, other: Tensor, hidden: Tensor) -> Any:
        before = torch.ops.toy.pair(other)[0]
        return before, by_one_name(m.inner, recipe.steps, torch.ops.toy.named(hidden))

    inner = nn.Module()
    inner.weight = nn.Parameter(torch.zeros(4, 4, dtype=recipe.dtype), requires_grad=False)
    arguments = {"other": torch.zeros(3, 2), "hidden": rows(recipe.hint).to(recipe.dtype)}
    axes = {"other": {0: "U"}, "hidden": {0: "T"}}
    ranges = {"U": (1, 5), "T": (1, recipe.high)}
    graph = traced(model, arguments, axes, ranges, inner=inner)
    pieces = split(graph, ("toy::pair", "toy::named"), option_pairs(dict(recipe.options)))
    (piece,) = pieces.unique
    return piece


SOURCES: dict[str, str] = {}
"""Source by identity, over all examples: recipes that differ may still meet in one identity."""


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking compiles for minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(RECIPES)
@example(Recipe(("branch", "matrix"), 64, 6, torch.bfloat16, (("cpp.simdlen", 512),)))
@example(Recipe(("other branch", "root of a size", "in place"), 64, 2, torch.float32, ()))
def test_equal_identity_means_equal_source(recipe: Recipe) -> None:
    options = dict(recipe.options)
    pieces = [plain(recipe), disguised(recipe)]
    assert pieces[0].id == pieces[1].id, "one recipe, one identity"
    for piece in pieces:
        source = source_of(piece, options)
        assert SOURCES.setdefault(piece.id, source) == source


def test_the_property_above_can_fail() -> None:
    """The source does tell recipes apart: other ranges, literals, branches, dtypes, options."""
    base = Recipe(("softmax", "branch"), 64, 6, torch.float32, ())
    others = [
        Recipe(("softmax", "other branch"), 64, 6, torch.float32, ()),
        Recipe(("softmax", "branch"), 8, 6, torch.float32, ()),
        Recipe(("softmax", "branch"), 64, 6, torch.bfloat16, ()),
        Recipe(("softmax", "branch"), 64, 6, torch.float32, (("cpp.simdlen", 512),)),
    ]
    sources = {source_of(plain(one), dict(one.options)) for one in (base, *others)}
    assert len(sources) == 5


def test_equal_layers_of_different_decoders_compile_to_equal_source() -> None:
    """Llama and Mistral differ in their windows alone, which are arguments of attention."""
    seams = [
        max(pieces.unique, key=lambda piece: pieces.calls[piece.id])
        for pieces in (decoder_pieces("llama", 3), decoder_pieces("mistral", 4))
    ]
    assert seams[0].id == seams[1].id
    assert source_of(seams[0]) == source_of(seams[1])


SIZES_ALONE: dict[str, Step] = {
    "twice": lambda m, x: torch.ops.toy.mix(torch.cat([x, x])) * 2,
    "square": lambda m, x: torch.ops.toy.mix((x @ x.t()).flatten()[:, None]) * 2,
}


@pytest.mark.parametrize("name", SIZES_ALONE)
def test_a_size_that_stands_only_in_expressions_is_given_and_not_solved_for(name: str) -> None:
    graph = traced(SIZES_ALONE[name], {"x": rows()}, {"x": {0: "T"}})
    for piece in split(graph, ("toy::mix",), ()).unique:
        assert any("s0" in spec.shape for spec in piece.arguments)
        assert "sqrt" not in source_of(piece)


def test_fake_arguments_depend_on_the_piece_alone() -> None:
    piece = plain(Recipe(("scale",), 64, 6, torch.float32, ()))
    first, second = fake_arguments(piece), fake_arguments(piece)
    assert str(first) == str(second)
    assert first[0].fake_mode is not second[0].fake_mode
