"""Names of splitting ops: those that do not exist are refused, those that are absent are told."""

from __future__ import annotations

import pytest
import torch
from support.toys import rows, traced
from torch.fx import Graph

from vcc.cache.errors import ConfigError
from vcc.engine.partition.ops import absent


def graph() -> Graph:
    found = traced(lambda m, x: torch.ops.toy.mix.scaled(x + 1, 2.0), {"x": rows()})
    return found.graph.graph


@pytest.mark.parametrize("name", ["toy::mix", "toy::mix.scaled", "aten::add", "aten::add.Tensor"])
def test_an_op_of_the_graph_is_there_by_bare_and_by_full_name(name: str) -> None:
    assert absent(graph(), (name,)) == ()


@pytest.mark.parametrize("name", ["toy::attend", "toy::mix.default", "aten::mul"])
def test_an_op_that_exists_and_is_not_called_is_told(name: str) -> None:
    assert absent(graph(), ("toy::mix", name)) == (name,)


@pytest.mark.parametrize(
    "name", ["toy::mixed", "toy::mix.scale", "vllm::unified_attention", "mix", "toy.mix", "::", ""]
)
def test_an_op_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        absent(graph(), (name,))


def test_the_refusal_suggests_what_the_model_calls() -> None:
    with pytest.raises(ConfigError) as caught:
        absent(graph(), ("toy::mix.scales",))
    assert 'did you mean "toy::mix.scaled"?' in caught.value.hint
    assert int(caught.value.exit) == 2
