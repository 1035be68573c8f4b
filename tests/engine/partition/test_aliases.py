"""Writes through views across cuts: refused where they would be lost, kept where they would not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.interpret import same_as_model
from support.toys import rows, traced
from torch import Tensor

from vcc.cache.errors import CompileError
from vcc.engine.partition.split import split

toy = torch.ops.toy
OPS = ("toy::attend", "toy::write", "toy::mix")
Model = Callable[[Any, Tensor, Tensor], Any]


def view_of_a_cache_before_the_write(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    first = cache[:2]
    toy.write(x, cache)
    return first + 1


def view_of_a_result_written_by_an_op(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    toy.write(x, base[0])
    return base + 1


def view_of_a_result_written_by_a_piece(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    half = base[:, :2]
    y = toy.mix(x)
    half.add_(1)
    return base + y


def base_written_and_view_read_later(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    half = base[:, :2]
    y = toy.mix(x)
    base.add_(y)
    return toy.mix(y) + half.sum()


def stale_view_returned(m: Any, x: Tensor, cache: Tensor) -> Any:
    first = cache[:2]
    toy.write(x, cache)
    return first, x + 1


def stale_view_handed_to_an_op(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    flat = base.view(-1, 4)
    toy.mix(x)
    base.mul_(2)
    return toy.mix(flat) + base


LOST = [
    view_of_a_cache_before_the_write,
    view_of_a_result_written_by_an_op,
    view_of_a_result_written_by_a_piece,
    base_written_and_view_read_later,
    stale_view_returned,
    stale_view_handed_to_an_op,
]


@pytest.mark.parametrize("model", LOST, ids=lambda m: m.__name__)
def test_a_write_that_a_copy_would_miss_is_refused(model: Model) -> None:
    graph = traced(model, {"x": rows(), "cache": torch.zeros(4)}, {"x": {0: "T"}})
    with pytest.raises(CompileError, match=r"whose memory .* writes") as caught:
        split(graph, OPS, ())
    assert "copies" in caught.value.why
    assert caught.value.hint


def view_made_after_the_write(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    toy.write(x, cache)
    return toy.mix(x) * cache[:2].sum()


def view_that_stays_in_its_piece(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    base[:, :2].add_(1)
    return toy.mix(base) + base


def view_written_in_the_piece_that_takes_it(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    base = x * 2
    y = toy.mix(base)
    base[:, 1:].mul_(3)
    return toy.mix(y) + base


def view_crosses_and_its_base_is_not_read_again(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    part = (x * 2)[:, :4]
    y = toy.mix(x)
    part.add_(y)
    return toy.mix(y) + part


def view_of_a_written_buffer(m: Any, x: Tensor, cache: Tensor) -> Tensor:
    out = torch.empty_like(x)
    toy.attend(x, x, out)
    flat = out.reshape(-1, 4).relu()
    return toy.mix(flat) + out


def cache_returned_after_the_write(m: Any, x: Tensor, cache: Tensor) -> Any:
    toy.write(x, cache)
    return x + cache, cache


KEPT = [
    view_made_after_the_write,
    view_that_stays_in_its_piece,
    view_written_in_the_piece_that_takes_it,
    view_crosses_and_its_base_is_not_read_again,
    view_of_a_written_buffer,
    cache_returned_after_the_write,
]


@pytest.mark.parametrize("model", KEPT, ids=lambda m: m.__name__)
def test_a_write_that_reaches_all_readers_is_kept(model: Model) -> None:
    graph = traced(model, {"x": rows(), "cache": torch.zeros(4)}, {"x": {0: "T"}})
    pieces = split(graph, OPS, ())
    same_as_model(model, pieces, graph, {"x": torch.randn(5, 4), "cache": torch.randn(4)})
