"""`vcc passes check`: one pass on a model's graph, after the passes that run before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vcc.cache.errors import ConfigError
from vcc.engine.compile.dump import Dump
from vcc.engine.compile.source import trace_request
from vcc.engine.config.checks import suggestion
from vcc.engine.config.types import CompilationConfig
from vcc.engine.passes.apply import PASSES, apply
from vcc.engine.passes.base import Pass
from vcc.engine.passes.context import context_of
from vcc.engine.passes.prove import ALLOWED, Proof, prove
from vcc.engine.passes.user import chosen, load_one
from vcc.engine.request import BuildRequest, settle
from vcc.engine.trace.trace import trace
from vcc.engine.user_passes import entry_points


@dataclass(frozen=True, slots=True)
class Checked:
    """A proof and what is wrong with it; an empty verdict is a pass that does its work."""

    proof: Proof
    verdict: str


def find(name: str) -> Pass:
    """A pass of ours by name, an installed one, or `module:NAME`.

    Raises:
        ConfigError: there is none, or it cannot be loaded.
        UsageError: what is named is no pass.
    """
    ours = {one.name: one for one in PASSES}
    if name in ours:
        return ours[name]
    if ":" in name or name in entry_points():
        return load_one(name)
    known = (*ours, *entry_points())
    raise ConfigError(
        f'there is no pass "{name}"', "", suggestion(name, known) + "; one of a file is module:NAME"
    )


def check(name: str, request: BuildRequest) -> Checked:
    """Trace a model, run the passes before this one, then this one, and compare results.

    Args:
        name: as for `find`.
        request: the model, for the CPU in fp32.

    Raises:
        CompileError: the model cannot be traced, or the pass breaks its graph.
    """
    one = find(name)
    settled = settle(replace(request, compilation=_with(request.compilation, one, name)))
    passes = chosen(settled.resolved.config)
    context, dump = context_of(settled), Dump(request.keep)
    traced = trace(trace_request(settled))
    dump.graph("traced", traced)
    place = [each.name for each in passes].index(one.name)
    apply(traced, passes[:place], context, dump)
    proof = prove(traced, one, context, dump)
    return Checked(proof, _verdict(proof, request.source.name))


def _with(config: CompilationConfig, one: Pass, name: str) -> CompilationConfig:
    """The configuration with the pass switched on."""
    if one.name in {mine.name for mine in PASSES}:
        return replace(config, pass_config=replace(config.pass_config, **{one.name: True}))
    return replace(config, user_passes=(*(config.user_passes or ()), name))


def _verdict(proof: Proof, model: str) -> str:
    report = proof.report
    if report.skipped:
        return f"it does not run here: {report.skipped}"
    if not proof.equal:
        return f"results differ: {proof.error:.1e} of the largest value, where {ALLOWED} is allowed"
    if not report.matches:
        return f"it never matches in {model}"
    return ""
