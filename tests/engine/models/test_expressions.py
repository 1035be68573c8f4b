"""Binding expressions: text and value are inverse, and broken text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.cache.errors import IntegrityError
from vcc.engine.models.expression_text import parse
from vcc.engine.models.expressions import (
    Binding,
    Cat,
    ChannelsLast,
    Flat,
    FromTensor,
    Repeat,
    Rows,
    Stack,
    Tied,
    Transpose,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.builds(FromTensor, names) | st.builds(Tied, names)


def _grow(inner: st.SearchStrategy[Binding]) -> st.SearchStrategy[Binding]:
    parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
    rows = st.tuples(inner, st.integers(0, 99), st.integers(0, 99))
    return (
        st.builds(Cat, parts)
        | st.builds(Stack, parts)
        | st.builds(Transpose, inner)
        | st.builds(Flat, inner)
        | st.builds(Repeat, inner, st.integers(1, 1 << 24))
        | rows.map(lambda row: Rows(row[0], row[1], row[1] + row[2]))
    )


@given(st.recursive(leaves, _grow, max_leaves=6))
def test_parse_is_the_inverse_of_str(binding: Binding) -> None:
    assert parse(str(binding)) == binding
    turned = ChannelsLast(binding)
    assert parse(str(turned)) == turned


def test_the_text_form_is_stable() -> None:
    fused = Cat((FromTensor("q"), Rows(FromTensor("kv"), 0, 64), Transpose(Tied("embed.weight"))))
    text = 'cat(tensor("q"), rows(tensor("kv"), 0:64), transpose(tied("embed.weight")))'
    assert str(fused) == text
    assert str(ChannelsLast(Tied("conv"))) == 'channels_last(tied("conv"))'
    assert str(Repeat(FromTensor("a"), 3)) == 'repeat(tensor("a"), 3)'
    assert str(Cat((Flat(FromTensor("a")),))) == 'cat(flat(tensor("a")))'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tensor",
        "tensor(",
        "tensor(x)",
        'tensor("x"',
        'tensor("x"))',
        'tensor("x") tied("y")',
        'tensor("\\x")',
        "cat()",
        'cat(tensor("x"),)',
        'rows(tensor("x"), 5:4)',
        'rows(tensor("x"), -1:4)',
        'rows(tensor("x"))',
        'repeat(tensor("x"), 0)',
        'repeat(tensor("x"), 16777217)',
        'repeat(tensor("x"))',
        'eval("x")',
        "channels_last()",
        'channels_last(tensor("x"), 0)',
        'channels_last(channels_last(tensor("x")))',
        'cat(tensor("x"), channels_last(tensor("y")))',
        'stack(channels_last(tensor("x.*")), 0:2)',
        "transpose(" * 2000,
        "cat(" * 200_000,
    ],
)
def test_broken_text_is_refused(text: str) -> None:
    with pytest.raises(IntegrityError):
        parse(text)
