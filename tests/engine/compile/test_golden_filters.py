"""Goldens of convolutions: filters keep the size of images, and rounding that grows is no fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.toys import traced
from torch import Tensor, nn
from torch.fx import Interpreter, symbolic_trace
from torch.nn import functional as F

from vcc.cache.errors import IntegrityError
from vcc.engine.compile.golden import Skipped, make_golden
from vcc.engine.compile.golden_filters import filters_of
from vcc.engine.graphs.golden import Argument, Golden, draw
from vcc.engine.partition.split import split
from vcc.engine.types import Piece

LAYERS, CHANNELS = 12, 32


def piece(model: Callable[..., Any], **parts: nn.Parameter) -> Piece:
    """The piece of `model(module, x)` for images of 32 channels."""
    return split(
        traced(model, {"x": torch.zeros(4, CHANNELS, 6, 6)}, {"x": {0: "N"}}, **parts), (), ()
    ).unique[0]


def eager(of: Piece) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    def run(arguments: Sequence[Tensor]) -> list[Tensor]:
        Interpreter(of.graph).run(*arguments)
        return []

    return run


def filters(layers: int) -> dict[str, nn.Parameter]:
    shape = (CHANNELS, CHANNELS, 3, 3)
    return {f"w{i}": nn.Parameter(torch.zeros(shape), False) for i in range(layers)}


def deep(m: Any, x: Tensor) -> Tensor:
    """Like a network for phones: each layer is cut off at 0 and 6."""
    for layer in range(LAYERS):
        x = F.relu6(F.conv2d(x, getattr(m, f"w{layer}"), padding=1))
    return x


def growing(m: Any, x: Tensor) -> Tensor:
    for layer in range(4):
        x = torch.sin(100 * F.conv2d(x, getattr(m, f"w{layer}"), padding=1))
    return x


def test_a_deep_network_has_a_golden_in_fp32() -> None:
    one = piece(deep, **filters(LAYERS))
    made = make_golden(one, eager(one))
    assert isinstance(made, Golden)
    drawn = [argument for argument in made.arguments if argument.terms]
    assert [argument.terms for argument in drawn] == [CHANNELS * 9] * LAYERS
    assert 0 < float(np.abs(made.references[0]).mean()) < 6
    assert Golden.decode(made.encode()).arguments == made.arguments


def test_layers_that_amplify_rounding_have_none() -> None:
    one = piece(growing, **filters(4))
    made = make_golden(one, eager(one))
    assert isinstance(made, Skipped)
    assert "amplify the rounding" in made.reason


def test_a_wrong_filter_is_found() -> None:
    one = piece(deep, **filters(LAYERS))

    def swapped(arguments: Sequence[Tensor]) -> list[Tensor]:
        places = sorted(filters_of(one.graph))
        given = list(arguments)
        given[places[0]], given[places[1]] = given[places[1]], given[places[0]]
        return eager(one)(given)

    with pytest.raises(Exception, match="was compiled wrongly"):
        make_golden(one, swapped)


def test_filters_are_what_a_convolution_takes_as_it_is() -> None:
    aten = torch.ops.aten

    def calls(x: Any, flat: Any, wide: Any, turned: Any, seen: Any) -> Any:
        y = aten.conv1d.default(x, flat)
        y = aten.conv2d.default(y, wide, None, [2, 2])
        y = aten.convolution.default(y, turned, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
        return aten.conv2d.default(y, aten.neg.default(seen))

    assert filters_of(symbolic_trace(calls)) == {1, 2}


def test_a_filter_is_drawn_by_the_terms_of_its_sums() -> None:
    one = Argument("float32", (64, 16, 3, 3), False, 144)
    assert abs(float(draw("a", 0, one).std()) * 12 - 1) < 0.05


def blob(*terms: Any) -> bytes:
    entry = ["float32", [2, 2, 1, 1], False, *terms]
    content = {"arguments": [entry], "below": 2, "bounds": []}
    header = json.dumps({"__metadata__": {"golden": json.dumps(content)}}).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("terms", [[-1], [True], [1.5], ["1"], [1 << 50], [1, 1]])
def test_terms_that_are_none_are_refused(terms: list[Any]) -> None:
    assert [Golden.decode(blob(*good)).arguments[0].terms for good in ([], [2])] == [0, 2]
    with pytest.raises(IntegrityError, match="golden refused"):
        Golden.decode(blob(*terms))
