"""An operator whose fake says something else than its kernel does ends a build by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch import Tensor
from torch.fx import symbolic_trace

from vcc.cache.errors import CompileError
from vcc.engine.compile.fakes import check_fakes
from vcc.engine.compile.golden import Skipped, make_golden
from vcc.engine.partition.split import split

LIBRARY = torch.library.Library("fibbing", "DEF")
KERNELS: Mapping[str, Callable[..., Any]] = {
    "half(Tensor x) -> Tensor": lambda x: x[:, :2].clone(),
    "longer(Tensor x) -> Tensor": lambda x: torch.cat([x, x]),
    "turned(Tensor x) -> Tensor": lambda x: x.t().contiguous().t(),
    "wider(Tensor x) -> Tensor": lambda x: x.double(),
    "flat(Tensor x) -> Tensor": lambda x: x.flatten(),
    "second(Tensor x) -> (Tensor, Tensor)": lambda x: (x + 1, x[0].clone()),
    "listed(Tensor x) -> Tensor[]": lambda x: [x + 1, x.half()],
    "right(Tensor x) -> Tensor": lambda x: x + 1,
    "choosy(Tensor x) -> Tensor": lambda x: _refuse(),
    "wrong_on_the_way(Tensor x) -> Tensor": lambda x: x[:, :3].clone(),
}


def _refuse() -> Tensor:
    raise ValueError("these values mean nothing to the kernel")


def same(x: Tensor) -> Tensor:
    return torch.empty_like(x)


FAKES: Mapping[str, Callable[..., Any]] = {
    "second": lambda x: (same(x), same(x)),
    "listed": lambda x: [same(x), same(x)],
}
"""Those that say more than one result like the argument."""


def _define() -> None:
    for schema, kernel in KERNELS.items():
        name = schema.partition("(")[0]
        LIBRARY.define(schema)
        LIBRARY.impl(name, kernel, "CPU")
        torch.library.register_fake(f"fibbing::{name}", FAKES.get(name, same), lib=LIBRARY)


_define()


def graph_of(op: str) -> Any:
    def forward(self: Any, x: Tensor) -> Any:
        found = getattr(torch.ops.fibbing, op)(x * 2)
        return found + 1 if isinstance(found, Tensor) else found[1] + found[0]

    return traced(forward, {"x": rows()}, {"x": {0: "T"}})


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("half", r"result 0 is float32 \[6, 2\] with .*, by its fake float32 \[6, 4\] with"),
        ("longer", r"result 0 is float32 \[12, 4\]"),
        ("turned", r"strides \[1, 6\], by its fake float32 \[6, 4\] with strides \[4, 1\]"),
        ("wider", r"result 0 is float64 \[6, 4\] .* by its fake float32"),
        ("flat", r"result 0 is float32 \[24\]"),
        ("second", r"result 1 is float32 \[4\]"),
        ("listed", r"result 1 is float16 \[6, 4\]"),
    ],
)
def test_a_result_that_is_not_as_its_fake_says_is_refused_by_name(op: str, said: str) -> None:
    with pytest.raises(CompileError, match=f"fibbing::{op} gives something else") as error:
        check_fakes(graph_of(op).graph, [rows()])
    assert re.search(said, error.value.why), error.value.why
    assert "register_fake" in error.value.hint


def test_what_is_as_it_was_said_passes_and_changes_no_argument() -> None:
    x = rows()
    check_fakes(graph_of("right").graph, [x])
    assert torch.equal(x, rows())


def test_a_kernel_that_refuses_drawn_values_is_no_liar() -> None:
    check_fakes(graph_of("choosy").graph, [rows()])


def test_the_first_wrong_result_is_told_although_it_breaks_what_comes_after() -> None:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.ops.fibbing.wrong_on_the_way(x) + x

    with pytest.raises(CompileError, match="fibbing::wrong_on_the_way"):
        check_fakes(traced(forward, {"x": rows()}).graph, [rows()])


def test_strides_of_one_element_and_sizes_that_depend_on_data_count_not() -> None:
    column = rows(6, 1)
    check_fakes(traced(lambda m, x: torch.ops.fibbing.turned(x), {"x": column}).graph, [column])
    check_fakes(symbolic_trace(lambda x: torch.ops.toy.chosen.default(x)), [rows()])


def test_a_build_asks_before_it_makes_a_golden() -> None:
    def piece(op: str) -> Any:
        return split(graph_of(op), (), ()).unique[0]

    with pytest.raises(CompileError, match="fibbing::longer"):
        make_golden(piece("longer"), lambda arguments: [])
    assert isinstance(make_golden(piece("choosy"), lambda arguments: []), Skipped)
