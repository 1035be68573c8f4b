"""Rows of a step stay apart: a graph in which tokens meet outside of attention is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from vcc.cache.errors import ModelError
from vcc.engine.models.shapes import InputShape
from vcc.engine.trace.module import module_trace
from vcc.engine.trace.trace import trace

Model = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """A function of rows and their positions."""

    def __init__(self, function: Model) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.function(x, positions)


def look(function: Model) -> None:
    """Trace a function of x [T, 6] and positions [T] as a step is traced."""
    shapes = (InputShape.parse("x=T@1-16x6"), InputShape.parse("positions=T@1-16:int64"))
    request = module_trace(Net(function), shapes, torch.float32)
    trace(replace(request, positions="positions"))


def placed(x: Tensor, positions: Tensor) -> Tensor:
    return x + positions[:, None]


APART: dict[str, Model] = {
    "a norm": lambda x, p: placed(torch.nn.functional.layer_norm(x, (6,)), p),
    "a softmax over features": lambda x, p: placed(x, p).softmax(-1),
    "halves of features": lambda x, p: torch.cat((-x[:, 3:], x[:, :3]), -1) * p[:, None],
    "a batch of one": lambda x, p: placed(x, p)[None].mean(-1)[0],
    "a table by position": lambda x, p: x + torch.ones(16, 6)[p],
    "a product with weights": lambda x, p: placed(x, p) @ torch.ones(6, 4),
    "numbers of features": lambda x, p: placed(x, p) * torch.arange(6),
    "the less of two": lambda x, p: torch.max(torch.min(placed(x, p), x), torch.ones(1)),
    "a dead sum over tokens": lambda x, p: (x.cumsum(0), placed(x, p))[1],
}

MEET: dict[str, tuple[Model, str]] = {
    "a shift": (lambda x, p: placed(torch.roll(x, 1, 0), p), "roll"),
    "the token before": (
        lambda x, p: placed(torch.nn.functional.pad(x, (0, 0, 1, 0))[:-1], p),
        "slice",
    ),
    "a running sum": (lambda x, p: placed(x.cumsum(0), p), "cumsum"),
    "a mean": (lambda x, p: placed(x - x.mean(0), p), "mean"),
    "the least of everything": (lambda x, p: placed(x - x.min(), p), "min"),
    "a mean of everything": (lambda x, p: placed(x - x.mean(), p), "mean"),
    "scores": (lambda x, p: placed(x, p) @ placed(x, p).t() @ x, "matmul"),
    "a sum by letters": (lambda x, p: placed(torch.einsum("tf,tg->fg", x, x)[:1], p), "einsum"),
    "a convolution": (
        lambda x, p: placed(
            torch.nn.functional.conv1d(x.t()[None], torch.ones(6, 6, 3), padding=1)[0].t(), p
        ),
        "conv",
    ),
    "numbers of its own": (
        lambda x, p: placed(x, p) * torch.arange(x.shape[0])[:, None],
        "arange",
    ),
    "the number of tokens": (lambda x, p: placed(x, p) / x.shape[0], "div"),
}


@pytest.mark.parametrize("name", APART)
def test_what_works_on_each_row_by_itself_is_taken(name: str) -> None:
    look(APART[name])


@pytest.mark.parametrize("name", MEET)
def test_what_lets_rows_meet_is_refused_by_the_operators_name(name: str) -> None:
    function, operator = MEET[name]
    with pytest.raises(ModelError, match="lets tokens of several sequences meet") as caught:
        look(function)
    assert operator in caught.value.what


def test_a_model_that_does_not_ask_for_positions_is_refused() -> None:
    with pytest.raises(ModelError, match="does not ask where its tokens are"):
        look(lambda x, positions: x * 2)
