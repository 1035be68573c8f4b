"""Running passes: the order, the switches, reports, and what happens when one fails."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from support.own_passes import NEVER
from support.toys import rows, traced
from torch.fx import GraphModule

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.config.levels import PASS_RULES
from vcc.engine.config.modes import Dtype
from vcc.engine.config.parse import parse_config
from vcc.engine.config.target import Target
from vcc.engine.config.types import CompilationConfig, PassConfig
from vcc.engine.ops.register import load_ops
from vcc.engine.passes.apply import PASSES, apply, enabled, range_ends, unmatched
from vcc.engine.passes.base import Gate, Outcome, Pass, PassContext, define
from vcc.engine.passes.rewrite import call
from vcc.engine.passes.version import RULES
from vcc.engine.torch_shim.nodes import is_registered
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
    names = [one.name for one in PASSES if one.name != "eliminate_noops"]
    assert [one.name for one in enabled(off)] == names


def test_f4_a_plain_function_is_refused() -> None:
    """F4: adding a function that is not wrapped as a pass."""

    def my_pass(graph: GraphModule, context: PassContext) -> Outcome:
        return Outcome(0)

    with pytest.raises(UsageError, match="my_pass is not a pass") as caught:
        enabled(ALL_ON, [*PASSES, my_pass])  # type: ignore[list-item]
    assert "version" in caught.value.why
    assert "define" in caught.value.hint


def test_reports_say_what_each_pass_did() -> None:
    passed = apply(graph(), PASSES)
    fired = [(r.name, r.matches, r.refused) for r in passed.reports if r.matches]
    assert fired == [("eliminate_noops", 1, ()), ("eliminate_dead_code", 1, ())]
    assert [r.name for r in passed.reports] == [one.name for one in PASSES]
    assert [r.version for r in passed.reports] == [one.version for one in PASSES]


class Kept:
    """Keeps graphs in memory."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def graph(self, name: str, traced: Traced) -> None:
        self.seen.append((name, traced.graph.code))

    def failed(self, name: str, traced: Traced, given: str) -> str:
        self.seen += [(f"{name} given", given), (f"{name} left", str(traced.graph.graph))]
        return "/kept/here"


def test_the_dump_sees_the_graph_after_each_pass() -> None:
    kept = Kept()
    apply(graph(), PASSES, dumps=kept)
    names = [name for name, _ in kept.seen]
    assert names == [one.name for one in PASSES if not RULES[one.name].parts]  # fusions are off
    assert not any("slice" in code for _, code in kept.seen)
    gone = ["exp" not in code for _, code in kept.seen]
    assert gone == [names.index(name) >= names.index("eliminate_dead_code") for name in names]


def raises(graph: GraphModule, context: PassContext) -> Outcome:
    raise ZeroDivisionError("by hand")


def misorders(graph: GraphModule, context: PassContext) -> Outcome:
    """Leaves a node that is used before it is defined."""
    nodes = list(graph.graph.nodes)
    nodes[0].prepend(nodes[-2])
    return Outcome(1)


def forgets_a_value(graph: GraphModule, context: PassContext) -> Outcome:
    """Makes a node that has no fake value, which partition needs."""
    last = next(n for n in graph.graph.nodes if n.op == "output")
    with graph.graph.inserting_before(last):
        new = graph.graph.call_function(torch.ops.aten.neg.default, (last.args[0][0],))
    last.args = ((new,),)
    return Outcome(1)


def drops_an_input(graph: GraphModule, context: PassContext) -> Outcome:
    last = next(n for n in graph.graph.nodes if n.op == "output")
    last.args = ((torch.zeros(1),),)
    for node in reversed(list(graph.graph.nodes)):
        if node is not last:
            graph.graph.erase_node(node)
    return Outcome(1)


def changes_the_output(graph: GraphModule, context: PassContext) -> Outcome:
    last = next(n for n in graph.graph.nodes if n.op == "output")
    last.args = ((call(last, torch.ops.aten.sum.default, last.args[0][0]),),)
    return Outcome(1)


def calls_a_method(graph: GraphModule, context: PassContext) -> Outcome:
    last = next(n for n in graph.graph.nodes if n.op == "output")
    with graph.graph.inserting_before(last):
        graph.graph.call_method("neg", (last.args[0][0],)).meta["val"] = None
    return Outcome(1)


def returns_nothing(graph: GraphModule, context: PassContext) -> None:
    return None


BROKEN: dict[Any, str] = {
    raises: "ZeroDivisionError: by hand",
    misorders: "RuntimeError",
    forgets_a_value: "neg_default has no fake value",
    drops_an_input: "its inputs are \\(\\), and were",
    changes_the_output: "its outputs are",
    calls_a_method: "is a call_method",
    returns_nothing: "it returned NoneType",
}


@pytest.mark.parametrize("rewrite", BROKEN, ids=lambda rewrite: rewrite.__name__)
def test_a_pass_that_raises_or_breaks_the_graph_is_named_with_its_dump(rewrite: Any) -> None:
    kept = Kept()
    with pytest.raises(CompileError, match=r"pass careless failed.* /kept/here") as caught:
        apply(graph(), [*PASSES, define("careless", rewrite)], dumps=kept)
    assert re.search(BROKEN[rewrite], caught.value.why)
    assert int(caught.value.exit) == 8
    assert [name for name, _ in kept.seen][-2:] == ["careless given", "careless left"]
    assert kept.seen[-2][1] == kept.seen[-3][1], "what it was given is what the last one left"


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


GATES: dict[str, tuple[Gate, dict[str, Any], str]] = {
    "open": (Gate(), {}, ""),
    "the whole range is below the limit": (Gate(max_tokens=64), {"tokens": (1, 64)}, ""),
    "the range ends above the limit": (Gate(max_tokens=64), {"tokens": (1, 65)}, "above"),
    "the range begins below the least": (Gate(min_tokens=8), {"tokens": (7, 64)}, "below"),
    "an undeclared range": (Gate(max_tokens=64), {}, "above its limit of 64"),
    "its platform": (Gate(targets=("cpu",)), {}, ""),
    "another platform": (Gate(targets=("cuda",)), {}, "is not cuda"),
    "another platform of several": (Gate(targets=("cuda", "hip")), {}, "none of cuda, hip"),
    "its architecture": (Gate(targets=("sm_90",)), {"target": Target.parse("sm_90a")}, ""),
    "another architecture": (
        Gate(targets=("sm_90",)),
        {"target": Target.parse("sm_80")},
        "not sm_90",
    ),
    "its dtype": (Gate(dtypes=(Dtype.FP32,)), {}, ""),
    "another dtype": (Gate(dtypes=(Dtype.BF16,)), {}, "dtype fp32 is not bf16"),
}


@pytest.mark.parametrize("name", GATES)
def test_a_gate_says_where_a_pass_runs_and_why_not(name: str) -> None:
    gate, known, why = GATES[name]
    one = Pass("gated", counts, "0", gate=gate)
    report = apply(graph(), [one], PassContext(**known)).reports[0]
    assert bool(report.skipped) == bool(why)
    assert why in report.skipped
    assert report.matches == (0 if why else 7)


def counts(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome(int(context.parameters.get("many", 7)))


def test_f7_ranges_end_where_gates_do() -> None:
    """F7: what runs up to a limit gets a range of its own, so that it fires below."""
    one = Pass("gated", counts, "0", gate=Gate(min_tokens=9, max_tokens=64))
    assert range_ends([one], PassContext()) == (8, 64)
    fired = [
        apply(graph(), [one], PassContext(tokens=tokens)).reports[0].matches
        for tokens in ((1, 8), (9, 64), (65, 128))
    ]
    assert fired == [0, 7, 0]


def test_f7_a_pass_that_is_skipped_at_every_size_asks_for_no_range() -> None:
    gate = Gate(max_tokens=64, targets=("cuda",), dtypes=(Dtype.BF16,))
    one = Pass("gated", counts, "0", gate=gate)
    there = PassContext(target=Target.parse("sm_90"), dtype=Dtype.BF16)
    assert range_ends([one], there) == (64,)
    assert range_ends([one], replace(there, dtype=Dtype.FP32)) == ()
    assert range_ends([one], replace(there, target=Target.parse("cpu"))) == ()
    needy = replace(one, needs=("toy::nowhere",))
    assert range_ends([needy], there) == ()


def test_rules_say_which_operators_nothing_implements_yet() -> None:
    load_ops()
    lacking = {
        one.name: next((name for name in one.needs if not is_registered(name)), "")
        for one in PASSES
    }
    assert {rule.name: rule.missing_op for rule in PASS_RULES} == lacking


def test_a_pass_is_skipped_where_an_operator_of_its_result_does_not_exist() -> None:
    one = Pass("needy", counts, "0", needs=("toy::mix", "toy::nowhere"))
    report = apply(graph(), [one]).reports[0]
    assert report.skipped == "operator toy::nowhere does not exist here"
    there = replace(one, needs=("toy::mix",))
    assert apply(graph(), [there]).reports[0].needs == ("toy::mix",)


def test_a_pass_gets_its_parameters() -> None:
    one = define("counting", counts, parameters={"many": 3})
    assert apply(graph(), [one]).reports[0].matches == 3


COMPARED = {"equal": lambda size: size == 6, "below": lambda size: size < 20}


@pytest.mark.parametrize("how", COMPARED)
def test_a_pass_that_compares_sizes_is_refused(how: str) -> None:
    """The graph must stay right for every size of the range."""
    with pytest.raises(CompileError, match="specialises failed") as caught:
        apply(graph(), [Pass("specialises", specialises, "0", parameters=(("how", how),))])
    assert "it compared sizes and takes for granted that" in caught.value.why


def specialises(graph: GraphModule, context: PassContext) -> Outcome:
    size = next(iter(graph.graph.nodes)).meta["val"].shape[0]
    return Outcome(int(COMPARED[str(context.parameters["how"])](size)))


def test_a_pass_that_was_asked_for_and_never_matched_is_told_with_the_reason() -> None:
    gated = Pass("gated", counts, "0", gate=Gate(targets=("cuda",)))
    near = Pass("near", near_miss, "0")
    passed = apply(graph(), [*PASSES, NEVER, gated, near])
    assert unmatched(passed, CompilationConfig()) == (
        "pass never never matched: its pattern is nowhere in the graph",
        "pass gated never matched: target cpu:x86-64-v3 is not cuda",
        "pass near never matched: relu: it is read again",
    )
    clean = traced(lambda m, x: x.relu(), {"x": rows()})
    asked = CompilationConfig(pass_config=PassConfig(eliminate_noops=True))
    assert unmatched(apply(clean, PASSES), asked) == (
        "pass eliminate_noops never matched: its pattern is nowhere in the graph",
    ), "of our own only those that the user switched on"


def near_miss(graph: GraphModule, context: PassContext) -> Outcome:
    return Outcome(0, ("relu: it is read again",))
