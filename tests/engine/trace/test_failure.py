"""A trace that fails names the line of the model, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch.nn import functional

from vcc.cache.errors import CompileError


def test_a_graph_break_names_its_line() -> None:
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(CompileError, match=r"test_failure\.py:\d+: if x\.sum\(\) > 0:") as error:
        traced(forward, {"x": rows()})
    assert "TORCH_LOGS" not in error.value.why
    assert "data-dependent" in error.value.hint


def test_a_number_that_depends_on_data_names_its_line() -> None:
    def forward(self, x):
        count = int(x.sum().item())
        return x[:count]

    with pytest.raises(CompileError, match=r"test_failure\.py:\d+: "):
        traced(forward, {"x": rows()})


def test_an_operator_without_a_fake_is_named_with_its_remedy() -> None:
    library = torch.library.Library("nofake", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")

    def forward(self, x):
        return torch.ops.nofake.twice(x)

    with pytest.raises(CompileError, match="nofake::twice has no fake") as error:
        traced(forward, {"x": rows()})
    assert error.value.hint == 'register one: @torch.library.register_fake("nofake::twice")'
    assert "test_failure.py" in error.value.why


def other_sizes(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ torch.zeros(7, 3)


def not_broadcast(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(5)


def no_such_view(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.view(5, 5)


def no_such_row(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x[7]


def no_such_dimension(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 1)


def other_type(self: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.embedding(x, torch.zeros(10, 4))


def other_device(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(6, 4, device="meta")


def unfed(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x * mask


def no_tensor(self: Any, x: torch.Tensor) -> Any:
    return {"x": object()}


def by_numpy(self: Any, x: torch.Tensor) -> Any:
    return x.numpy().sum()


def refusing(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("only 3 rows have a shape that fits")


def misspelt(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.wieght * x


def by_a_branch(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x if x.max() > 0 else -x


@pytest.mark.parametrize(
    ("forward", "advice"),
    [
        (other_sizes, "declare shapes that the model takes"),
        (not_broadcast, "declare shapes that the model takes"),
        (no_such_view, "declare shapes that the model takes"),
        (no_such_row, "declare shapes that the model takes"),
        (no_such_dimension, "declare shapes that the model takes"),
        (other_type, "convert one of them"),
        (other_device, "make it where an input is"),
        (unfed, "declare each argument of forward"),
        (no_tensor, "return tensors"),
        (by_numpy, "compute it with torch"),
        (refusing, "the model itself raises it"),
        (misspelt, "the model itself raises it"),
        (by_a_branch, "remove the data-dependent branch"),
    ],
)
def test_each_kind_of_failure_has_advice_of_its_own(forward: Any, advice: str) -> None:
    with pytest.raises(CompileError, match="cannot be traced") as error:
        traced(forward, {"x": rows()})
    assert error.value.hint.startswith(advice)


def test_what_is_of_no_known_kind_is_not_taken_for_a_branch() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(3).set_(torch.UntypedStorage(4)) + x

    with pytest.raises(CompileError) as error:
        traced(forward, {"x": rows()})
    assert error.value.hint.startswith("change what it names")
