"""Which calls are of one variant, and which arguments are refused."""

from __future__ import annotations

import pytest
import torch

from vcc.cache.errors import ConfigError, UsageError
from vcc.engine.library.arguments import Arguments
from vcc.engine.library.options import make_options


def takes(x, y=None, flag=False, **more):
    """Whose parameters are read."""


def arguments(dims=None, sizes=None) -> Arguments:
    return Arguments(takes, make_options(dims, sizes, None))


X = torch.zeros(3, 4)


def test_sizes_of_dynamic_dimensions_are_of_one_variant() -> None:
    read = arguments({"x": 0, "y": -1}, {"T": (1, 8)}).read
    first, second = read((X, torch.zeros(3)), {}), read((torch.zeros(5, 4), torch.zeros(5)), {})
    assert first.variant == second.variant
    assert [str(one) for one in first.variant.shapes] == [
        "x=T@1-8x4:float32",
        "y=T@1-8:float32",
    ]


@pytest.mark.parametrize(
    "other",
    [
        ((torch.zeros(5, 4),), {}),
        ((X.double(),), {}),
        ((X,), {"flag": True}),
        ((X,), {"y": None}),
        ((X,), {"more": X}),
    ],
)
def test_everything_else_is_another_variant(other) -> None:
    read = arguments().read
    assert read(*other).variant != read((X,), {}).variant


def test_equal_values_of_other_types_are_other_variants() -> None:
    read = arguments().read
    found = {read((X,), {"flag": value}).variant for value in (True, 1, 1.0, "1", 0.0, -0.0)}
    assert len(found) == 6


def test_keyword_arguments_are_read_by_name() -> None:
    assert arguments({"more": 0}).read((X,), {"more": X}).tensors.keys() == {"x", "more"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "do not fit"),
        ((None,), "no tensors"),
        (([X],), "x is a list"),
        ((X, torch.zeros(2)), "dimension 0 of y is 2"),
        ((torch.zeros(9, 4),), "dimension 0 of x is 9"),
        ((torch.zeros(0, 4),), "empty"),
        ((torch.tensor(1.0),), "has 0 dimensions"),
        ((X.to_sparse(),), "sparse"),
        ((X.to("meta"),), "on meta"),
        ((X.to(torch.complex64),), "complex64"),
        ((X.clone().requires_grad_(),), "requires a gradient"),
    ],
)
def test_arguments_that_no_artifact_takes_are_refused(args, why: str) -> None:
    read = arguments({"x": 0, "y": 0}, {"T": (1, 8)}).read
    with pytest.raises(UsageError, match=why):
        read(args, {})


@pytest.mark.parametrize(
    ("dims", "sizes", "why"),
    [
        ({"x": {0: "t"}}, None, "cannot be read"),
        ({"x": ("a",)}, None, "cannot be read"),
        ({"x": 0}, {"T": (0, 4)}, "range of T"),
        ({"x": 0}, {"T": (5, 4)}, "range of T"),
        ({"x": 0}, {"L": (1, 4)}, "size L is not used"),
    ],
)
def test_dimensions_that_cannot_be_are_refused(dims, sizes, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_options(dims, sizes, None)


def test_an_argument_that_is_not_there_is_refused_with_the_nearest() -> None:
    def forward(input_ids, positions):
        """Whose parameters are read."""

    with pytest.raises(ConfigError, match="no argument input_id") as error:
        Arguments(forward, make_options({"input_id": 0}, None, None))
    assert error.value.hint == "did you mean input_ids?"


def test_the_range_of_tokens_comes_from_the_configuration() -> None:
    config = {"dynamic_shapes": {"tokens": {"min": 1, "max": 16}}}
    assert make_options({"x": 0}, None, config).range_of("T") == (1, 16)
