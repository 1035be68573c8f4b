"""Traced to Passed: the order table, and running the passes that the config switches on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from torch.fx import Node

from vcc.cache.errors import CompileError, UsageError
from vcc.engine.config.types import CompilationConfig, PassConfig
from vcc.engine.passes.act_mul import FUSE_ACT_MUL
from vcc.engine.passes.act_quant import FUSE_ACT_QUANT
from vcc.engine.passes.add_rms_norm import FUSE_ADD_RMS_NORM
from vcc.engine.passes.all_reduce_norm import FUSE_ALL_REDUCE_NORM
from vcc.engine.passes.attention_quant import FUSE_ATTENTION_QUANT
from vcc.engine.passes.base import Outcome, Pass, PassContext
from vcc.engine.passes.check import check_graph, interface_of, sizes_kept
from vcc.engine.passes.clones import ELIMINATE_CLONES
from vcc.engine.passes.dead_code import ELIMINATE_DEAD_CODE
from vcc.engine.passes.donate import DONATE_BUFFERS
from vcc.engine.passes.in_place import RESTORE_IN_PLACE
from vcc.engine.passes.launches import lift, lower, own_calls
from vcc.engine.passes.memory import refresh
from vcc.engine.passes.moe_experts import FUSE_MOE_EXPERTS
from vcc.engine.passes.moe_router import FUSE_MOE_ROUTER
from vcc.engine.passes.noops import ELIMINATE_NOOPS
from vcc.engine.passes.norm_linear import FUSE_NORM_LINEAR
from vcc.engine.passes.norm_quant import FUSE_NORM_QUANT
from vcc.engine.passes.qk_norm_rope import FUSE_QK_NORM_ROPE
from vcc.engine.passes.rms_norm import FUSE_RMS_NORM
from vcc.engine.passes.rope_kv_write import FUSE_ROPE_KV_WRITE
from vcc.engine.passes.splits import COALESCE_SPLITS
from vcc.engine.passes.version import RULES
from vcc.engine.torch_shim.nodes import is_registered
from vcc.engine.types import Passed, PassReport, Traced

PASSES: tuple[Pass, ...] = (
    ELIMINATE_NOOPS,
    COALESCE_SPLITS,
    FUSE_RMS_NORM,
    FUSE_ADD_RMS_NORM,
    FUSE_ACT_MUL,
    FUSE_ALL_REDUCE_NORM,
    FUSE_QK_NORM_ROPE,
    FUSE_ROPE_KV_WRITE,
    FUSE_NORM_QUANT,
    FUSE_ACT_QUANT,
    FUSE_ATTENTION_QUANT,
    FUSE_NORM_LINEAR,
    FUSE_MOE_ROUTER,
    FUSE_MOE_EXPERTS,
    ELIMINATE_CLONES,
    ELIMINATE_DEAD_CODE,
    RESTORE_IN_PLACE,
    DONATE_BUFFERS,
)
"""All passes in the order in which they run; one row a pass."""

FUSING = "fusing.py"
"""What fusions are made with, and no other pass is."""

USER_PASSES_BEFORE = ELIMINATE_DEAD_CODE.name
"""Where passes of the user's run: what they leave unread goes too."""


class Dumps(Protocol):
    """Where graphs are kept; see `engine/compile/dump.py`."""

    def graph(self, name: str, traced: Traced) -> None:
        """Keep the graph after the stage or pass `name`."""

    def failed(self, name: str, traced: Traced, given: str) -> str:
        """Keep what the pass `name` was given (Python source) and left; where that is."""


def enabled(config: PassConfig, passes: Sequence[Pass] = PASSES) -> tuple[Pass, ...]:
    """The passes that the config switches on, in order.

    Raises:
        UsageError: one of them is no pass.
    """
    for one in passes:
        check_is_pass(one)
    return tuple(one for one in passes if getattr(config, one.name))


def check_is_pass(one: object) -> None:
    """Refuse anything but a `Pass`, such as a plain function.

    Raises:
        UsageError: says how to wrap it.
    """
    if not isinstance(one, Pass):
        name = getattr(one, "__name__", repr(one))
        raise UsageError(
            f"{name} is not a pass",
            "it has no name and no version, so no key would cover it",
            f'wrap the function: {name.upper()} = vcc.engine.passes.base.define("{name}", {name})',
        )


def apply(
    traced: Traced,
    passes: Sequence[Pass],
    context: PassContext | None = None,
    dumps: Dumps | None = None,
) -> Passed:
    """Run the passes on a trace.

    Args:
        traced: rewritten in place.
        passes: in order.
        context: what passes may ask; by default that of an unknown CPU build.
        dumps: keeps the graph after each pass, and what a failing pass left.

    Raises:
        CompileError: a pass raised or left a broken graph; names the pass and the dump.
    """
    known = context or PassContext()
    reports = []
    fusing = [one for one in passes if _is_fusion(one) and not _skipped(one, known)]
    kept, lifted = own_calls(traced.graph.graph), lift(traced.graph.graph) if fusing else 0
    for one in passes:
        why = _skipped(one, known)
        if why:
            reports.append(PassReport(one.name, one.version, 0, skipped=why))
            continue
        outcome = _run(one, traced, replace(known, parameters=dict(one.parameters)), dumps)
        reports.append(_report(one, outcome))
        if dumps is not None:
            dumps.graph(one.name, traced)
    if fusing:
        _lowered(traced, kept, known, lifted, dumps)
    return Passed(traced, tuple(reports))


def _is_fusion(one: Pass) -> bool:
    rule = RULES.get(one.name)
    return rule is not None and FUSING in rule.parts


def _lowered(
    traced: Traced,
    kept: frozenset[Node],
    context: PassContext,
    lifted: int,
    dumps: Dumps | None,
) -> None:
    """Operators that fusions saw, and those they made, as launches again."""
    before = interface_of(traced.graph)
    if not lower(traced.graph.graph, kept, context, lifted):
        return
    refresh(traced.graph.graph)
    check_graph(traced.graph, before)
    traced.graph.recompile()
    if dumps is not None:
        dumps.graph("launches", traced)


def _skipped(one: Pass, context: PassContext) -> str:
    missing = next((name for name in one.needs if not is_registered(name)), None)
    if missing is not None:
        return f"operator {missing} does not exist here"
    return _switched_off(one, context) or one.gate.refusal(context)


def _switched_off(one: Pass, context: PassContext) -> str:
    """Why a fusion does not run where nobody decided about it; one that is asked for runs."""
    rule = RULES.get(one.name)
    if rule is None or getattr(context.config.pass_config, one.name) is True:
        return ""
    if rule.from_level is None:
        return "no level switches it on"
    missing = sorted(rule.needs_ops - context.ops)
    return f"custom op {missing[0]} is not enabled" if missing else ""


def _run(one: Pass, traced: Traced, context: PassContext, dumps: Dumps | None) -> Outcome:
    given, before = traced.graph.code, interface_of(traced.graph)
    try:
        with sizes_kept(traced.graph):
            outcome = one.rewrite(traced.graph, context)
            refresh(traced.graph.graph)
        check_graph(traced.graph, before)
        traced.graph.recompile()
        _check_outcome(outcome)
    except (Exception, SystemExit) as error:  # a pass that exits ends no build without a word
        where = "" if dumps is None else dumps.failed(one.name, traced, given)
        raise CompileError(
            f"pass {one.name} failed" + (f"; its graph is in {where}" if where else ""),
            f"{type(error).__name__}: {error}",
            _without(one),
        ) from error
    return outcome


def _check_outcome(outcome: object) -> None:
    if not isinstance(outcome, Outcome):
        raise TypeError(f"it returned {type(outcome).__name__}, not Outcome")
    matches: object = outcome.matches
    if type(matches) is not int or matches < 0:
        raise TypeError(f"matches of its Outcome is {matches!r}, not a whole number from 0")
    refused: Sequence[object] = outcome.refused
    if not isinstance(refused, tuple) or not all(isinstance(reason, str) for reason in refused):
        raise TypeError(f"refused of its Outcome is {refused!r}, not a tuple of texts")


def _without(one: Pass) -> str:
    known = one.name in {mine.name for mine in PASSES}
    if known:
        return f"switch it off in pass_config: {one.name} = false"
    return "correct it, or leave it out of user_passes"


def _report(one: Pass, outcome: Outcome) -> PassReport:
    return PassReport(
        one.name,
        one.version,
        outcome.matches,
        outcome.refused,
        saved=outcome.saved,
        needs=one.needs if outcome.matches else (),
    )


def version_pairs(passes: Sequence[Pass]) -> tuple[tuple[str, str], ...]:
    """Labelled versions for keys and identities."""
    return tuple((f"pass.{one.name}", one.version) for one in passes)


def range_ends(passes: Sequence[Pass], context: PassContext) -> tuple[int, ...]:
    """Token counts at which a gate opens or closes: where compile ranges may end, ascending.

    A pass that is skipped at every size asks for none.
    """
    gates = [one.gate for one in passes if not _never_runs(one, context)]
    below = {gate.min_tokens - 1 for gate in gates if gate.min_tokens > 1}
    last = {gate.max_tokens for gate in gates if gate.max_tokens is not None}
    return tuple(sorted(below | last))


def _never_runs(one: Pass, context: PassContext) -> bool:
    """Whether it is skipped for another reason than the number of tokens."""
    open_to_all = replace(one.gate, min_tokens=1, max_tokens=None)
    return bool(_skipped(replace(one, gate=open_to_all), context))


def unmatched(passed: Passed, asked: CompilationConfig) -> tuple[str, ...]:
    """A line for each pass that the user asked for and that did nothing, with the reason.

    Args:
        passed: what passes did.
        asked: the configuration as the user said it, before levels filled it.
    """
    ours = {one.name for one in PASSES}
    found = []
    for report in passed.reports:
        wanted = report.name not in ours or getattr(asked.pass_config, report.name) is True
        if wanted and not report.matches:
            why = report.skipped or next(
                iter(report.refused), "its pattern is nowhere in the graph"
            )
            found.append(f"pass {report.name} never matched: {why}")
    return tuple(found)
