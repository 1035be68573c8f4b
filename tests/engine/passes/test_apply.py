"""Running passes: the order, the switches, reports, and what happens when one fails."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.toys import rows, traced
from torch.fx import GraphModule

from vcc.cache.digest import Digest
from vcc.cache.errors import CompileError, UsageError
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.parse import parse_config
from vcc.engine.config.types import PassConfig
from vcc.engine.passes import dead_code, noops
from vcc.engine.passes.apply import PASSES, apply, enabled, version_pairs
from vcc.engine.passes.base import Outcome, Pass, define
from vcc.engine.types import Traced

ALL_ON = PassConfig(**{item.name: True for item in fields(PassConfig)})


def graph() -> Traced:
    return traced(lambda m, x: (x[:].exp(), x.relu())[1], {"x": rows()}, {"x": {0: "T"}})


def test_every_pass_has_its_switch_and_its_rule() -> None:
    names = [one.name for one in PASSES]
    assert sorted(names) == sorted(item.name for item in fields(PassConfig))
    assert sorted(names) == sorted(rule.name for rule in PASS_RULES)


def test_switches_choose_and_the_table_orders() -> None:
    assert enabled(ALL_ON) == PASSES
    assert enabled(PassConfig()) == ()
    off = replace(ALL_ON, eliminate_noops=False)
    assert [one.name for one in enabled(off)] == ["eliminate_dead_code"]


def test_f4_a_plain_function_is_refused() -> None:
    """F4: adding a function that is not wrapped as a pass."""

    def my_pass(graph: GraphModule) -> Outcome:
        return Outcome(0)

    with pytest.raises(UsageError, match="my_pass is not a pass") as caught:
        enabled(ALL_ON, [*PASSES, my_pass])  # type: ignore[list-item]
    assert "version" in caught.value.why
    assert "define" in caught.value.hint


def test_a_version_is_the_digest_of_the_file() -> None:
    for module, one in ((noops, PASSES[0]), (dead_code, PASSES[1])):
        source = Path(str(module.__file__)).read_bytes()
        assert one.version == Digest.of(source).short
    assert version_pairs(PASSES) == tuple((f"pass.{one.name}", one.version) for one in PASSES)


def test_reports_say_what_each_pass_did() -> None:
    passed = apply(graph(), PASSES)
    assert [(r.name, r.matches, r.refused) for r in passed.reports] == [
        ("eliminate_noops", 1, ()),
        ("eliminate_dead_code", 1, ()),
    ]
    assert [r.version for r in passed.reports] == [one.version for one in PASSES]


def test_the_dump_sees_the_graph_after_each_pass() -> None:
    seen: list[tuple[str, bool, bool]] = []

    def dump(name: str, now: Traced) -> None:
        seen.append((name, "slice" in now.graph.code, "exp" in now.graph.code))

    apply(graph(), PASSES, dump)
    assert seen == [("eliminate_noops", False, True), ("eliminate_dead_code", False, False)]


def raises(graph: GraphModule) -> Outcome:
    raise ZeroDivisionError("by hand")


def breaks(graph: GraphModule) -> Outcome:
    """Leaves a node that is used before it is defined."""
    nodes = list(graph.graph.nodes)
    nodes[0].prepend(nodes[-2])
    return Outcome(1)


@pytest.mark.parametrize(
    ("rewrite", "why"), [(raises, "ZeroDivisionError: by hand"), (breaks, "RuntimeError")]
)
def test_a_pass_that_raises_or_breaks_the_graph_is_named(rewrite: Any, why: str) -> None:
    with pytest.raises(CompileError, match="pass careless failed") as caught:
        apply(graph(), [*PASSES, define("careless", rewrite)])
    assert why in caught.value.why
    assert int(caught.value.exit) == 8


def test_the_hint_switches_the_pass_off() -> None:
    with pytest.raises(CompileError) as caught:
        apply(graph(), [Pass("eliminate_noops", raises, "0")])
    assert caught.value.hint.endswith("pass_config: eliminate_noops = false")
    text = '{"pass_config": {"eliminate_noops": false}}'
    assert parse_config(text).pass_config.eliminate_noops is False


def test_passes_do_not_touch_what_is_not_theirs() -> None:
    before = graph()
    after = apply(before, PASSES).traced
    assert after.placeholders == before.placeholders
    assert after.ranges == before.ranges
    x = torch.randn(7, 4)
    torch.testing.assert_close(after.graph(x)[0], x.relu(), rtol=0, atol=0)
