"""What a pass says of itself is checked, and a pass that exits ends no build without a word."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.toys import rows, traced
from torch.fx import GraphModule

from vcc.cache.errors import CompileError
from vcc.engine.passes.apply import apply
from vcc.engine.passes.base import Outcome, PassContext, define


def exits(graph: GraphModule, context: PassContext) -> Outcome:
    raise SystemExit(0)


def counts_in_words(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome("many")  # type: ignore[arg-type]


def counts_below_zero(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome(-5)


def refuses_a_number(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome(0, (5,))  # type: ignore[arg-type]


SAID: dict[Any, str] = {
    exits: "SystemExit: 0",
    counts_in_words: "TypeError: matches of its Outcome is 'many'",
    counts_below_zero: "TypeError: matches of its Outcome is -5",
    refuses_a_number: "TypeError: refused of its Outcome is (5,)",
}


@pytest.mark.parametrize("rewrite", SAID, ids=lambda rewrite: rewrite.__name__)
def test_a_pass_that_exits_or_counts_wrongly_is_named(rewrite: Any) -> None:
    graph = traced(lambda m, x: x.relu(), {"x": rows()}, {"x": {0: "T"}})
    with pytest.raises(CompileError, match="pass careless failed") as caught:
        apply(graph, [define("careless", rewrite)])
    assert re.match(re.escape(SAID[rewrite]), caught.value.why)
    assert int(caught.value.exit) == 8
