"""One pure function from what was asked and what the platform can do to a full configuration.

Compile mode, graph mode, attention support and platform are settled here and nowhere else; each
change carries its reason, which `vcc compile --dry-run` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from vcc.cache.errors import ConfigError

from .artifacts import artifact_rule
from .custom_ops import choose_ops
from .graph_mode import GraphFacts, settle_graph_mode
from .levels import DEFAULT_LEVEL, LEVEL_TABLE, PASS_RULES, PassRule
from .lora import lora_graphs
from .modes import Backend, CompileMode, GraphMode, Platform
from .op_names import op_name
from .ranges import check_ranged
from .resolved import PlatformFacts, Reason, Resolved, State, shown
from .sizes import CaptureLimits, check_compile_sizes, check_within, choose_capture_sizes
from .types import DEFAULT_SPLITTING_OPS, CompilationConfig, DimRange, DynamicShapes

__all__ = ["PlatformFacts", "Reason", "Resolved", "resolve"]


def resolve(
    config: CompilationConfig, facts: PlatformFacts, passes: Sequence[PassRule] = PASS_RULES
) -> Resolved:
    """Fill and reconcile a configuration.

    Args:
        config: what the user asked for; None means unset.
        facts: platform, attention, limits, known ops.
        passes: one rule per pass switch.

    Returns:
        The resolved configuration with its reasons. Its `artifact.refusal` is not raised here:
        `run` may go on where `compile` refuses.

    Raises:
        ConfigError: values that contradict each other or the limits.
    """
    state = State(config, config, facts, tuple(passes))
    for step in _STEPS:
        state = step(state)
    ops = choose_ops(config.custom_ops, facts.known_ops, state.mode, state.backend)
    return Resolved(state.config, state.reasons, ops, artifact_rule(state.mode, facts.platform))


def _levels(state: State) -> State:
    state = state.fill("level", DEFAULT_LEVEL, "default level")
    level = LEVEL_TABLE[state.level]
    why = f"level {shown(state.config.level)}"
    state = state.fill("mode", level.mode, why)
    state = state.fill("backend", Backend.INDUCTOR, "default back end")
    state = state.fill("cuda_graph_mode", level.graphs, why)
    inductor = state.mode.compiles and state.backend is Backend.INDUCTOR
    mine = dict(level.inductor) if inductor else {}
    options = mine | dict(state.config.inductor_config or ())
    return state.put("inductor_config", tuple(sorted(options.items())), why if mine else "default")


def _backend(state: State) -> State:
    """A table for a GPU is made of compiled kernels; the eager back end has none."""
    if state.backend is not Backend.EAGER or not state.mode.compiles:
        return state
    if state.asked.inductor_config:
        names = ", ".join(name for name, _ in state.asked.inductor_config)
        raise ConfigError(
            'backend "eager" has no options, but inductor_config is given',
            f"inductor_config = {names}",
            "leave it out, or use backend inductor",
        )
    if state.mode.rewrites and state.facts.platform is Platform.CUDA:
        raise ConfigError(
            'backend "eager" makes nothing for a GPU',
            "a node table consists of compiled kernels, and the eager back end compiles none",
            "leave backend unset, or record the eager step on a GPU: --compile none",
        )
    return state


def _custom_ops(state: State) -> State:
    asked, facts = state.config.custom_ops, state.facts
    choices = choose_ops(asked, facts.known_ops, state.mode, state.backend)
    if asked is not None:
        return state.put("custom_ops", choices.as_config(), "canonical form")
    why = choices.decisions[0].why if choices.decisions else "no custom op is known"
    return state.put("custom_ops", choices.as_config(), why)


def _passes(state: State) -> State:
    choices = choose_ops(state.config.custom_ops, state.facts.known_ops, state.mode, state.backend)
    for rule in state.passes:
        state = _switch(state, rule, choices.enabled)
    asked = state.config.user_passes or ()
    if asked and not state.mode.rewrites:
        raise ConfigError(
            f"{state.mode.name} has no graph that a pass could rewrite",
            f"user_passes = {', '.join(asked)}",
            "leave them out, or use --compile vcc",
        )
    return state.put("user_passes", tuple(dict.fromkeys(asked)), "in the order given")


def _switch(state: State, rule: PassRule, enabled: frozenset[str]) -> State:
    asked = getattr(state.config.pass_config, rule.name)
    value, why = _pass_value(state, rule, enabled, asked)
    if value == asked:
        return state
    reason = Reason(f"pass_config.{rule.name}", shown(asked), shown(value), why)
    passes = replace(state.config.pass_config, **{rule.name: value})
    config = replace(state.config, pass_config=passes)
    return replace(state, config=config, reasons=(*state.reasons, reason))


def _pass_value(
    state: State, rule: PassRule, enabled: frozenset[str], asked: bool | None
) -> tuple[bool, str]:
    mode, level = state.mode, state.level
    if not mode.rewrites:
        return False, f"{mode.name} has no graph of ours to rewrite"
    if asked is not None:
        return asked, "as given"
    if missing := sorted(rule.needs_ops - enabled):
        return False, f"custom op {missing[0]} is not enabled"
    if rule.from_level is None:
        return False, "no level switches it on"
    return level >= rule.from_level, f"level {shown(level)}"


UNCUT = "there are no pieces: the graph is not cut"
UNCUT_BY_INDUCTOR = "use_inductor_graph_partition: AOTInductor makes one library and cuts nothing"


def _inductor_partition(state: State) -> State:
    """Inductor's own partition needs Inductor."""
    if state.config.use_inductor_graph_partition is None:
        return state.put("use_inductor_graph_partition", False, "vcc cuts the graph itself")
    if state.config.use_inductor_graph_partition and not (
        state.mode.compiles and state.backend is Backend.INDUCTOR
    ):
        raise ConfigError(
            "use_inductor_graph_partition is on, but Inductor compiles nothing",
            f"mode {state.mode.name}, backend {state.backend.value}",
            "leave it out, or use --compile vcc with backend inductor",
        )
    return state


def _splitting(state: State) -> State:
    mode, asked = state.mode, state.config.splitting_ops
    if not mode.has_pieces:
        if asked and mode is CompileMode.DYNAMO_TRACE_ONCE:
            raise ConfigError(
                "DYNAMO_TRACE_ONCE does not cut, but splitting_ops are given",
                f"splitting_ops = {', '.join(asked)}",
                'leave them out, or use "mode": "VCC_COMPILE"',
            )
        if state.breakable:
            ops = _named(asked)
            return state.put("splitting_ops", ops, "where eager steps are broken into segments")
        return state.put("splitting_ops", (), f"{mode.name} does not cut the graph")
    if state.config.use_inductor_graph_partition:
        return state.put("splitting_ops", (), UNCUT_BY_INDUCTOR)
    joining = _joining_pass(state)
    if joining:
        return _joined(state, joining)
    why = "default cuts" if asked is None else "sorted, as ns::op"
    return state.put("splitting_ops", _named(asked), why)


def _named(asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """The user's splitting ops in one spelling; ours where there are none."""
    if asked is None:
        return DEFAULT_SPLITTING_OPS
    return tuple(sorted({op_name(one) for one in asked}))


def _joining_pass(state: State) -> str:
    for rule in state.passes:
        if rule.joins_attention and getattr(state.config.pass_config, rule.name):
            return rule.name
    return ""


def _joined(state: State, rule: str) -> State:
    """Row M5: a pass that rewrites across attention leaves nothing to cut."""
    if state.asked.splitting_ops:
        raise ConfigError(
            f"pass {rule} rewrites across attention, but splitting_ops cut there",
            f"splitting_ops = {', '.join(state.asked.splitting_ops)}",
            f"leave splitting_ops out or switch {rule} off",
        )
    state = state.put("splitting_ops", (), f"pass {rule} rewrites across attention")
    if state.graphs.uses(GraphMode.PIECEWISE):
        return state.put("cuda_graph_mode", GraphMode.FULL, f"pass {rule} leaves no pieces")
    return state


def _graph_mode(state: State) -> State:
    facts, cuts = state.facts, state.config.splitting_ops or ()
    known = GraphFacts(
        attention=facts.attention,
        query_len=facts.decode_query_len,
        pieces=(state.mode.has_pieces or state.breakable) and bool(cuts),
        attention_split=any(op in cuts for op in facts.attention_ops),
        uncut=UNCUT_BY_INDUCTOR if state.config.use_inductor_graph_partition else UNCUT,
    )
    asked = state.asked.cuda_graph_mode
    if asked is GraphMode.PIECEWISE and not state.mode.has_pieces and not known.pieces:
        raise ConfigError(
            f"graph mode piecewise needs pieces, but compile mode {state.mode.name} has none",
            "only VCC_COMPILE cuts the graph, and only decoders have eager segments",
            "use --compile vcc, or --mode full or none",
        )
    for mode, why in settle_graph_mode(state.graphs, known):
        state = state.put("cuda_graph_mode", mode, why)
    return state


def _capture(state: State) -> State:
    facts, config = state.facts, state.config
    if state.graphs is GraphMode.NONE:
        state = state.put("capture_sizes", (), "graphs are off")
        return state.put("max_capture_size", 0, "graphs are off")
    limits = CaptureLimits(facts.max_num_seqs, facts.max_num_batched_tokens, facts.decode_query_len)
    sizes, why = choose_capture_sizes(
        config.capture_sizes, config.max_capture_size, state.graphs, limits
    )
    state = state.put("capture_sizes", sizes, why)
    return state.put("max_capture_size", sizes[-1], "the largest capture size")


def _compile_sizes(state: State) -> State:
    config = state.config
    sizes = tuple(sorted(set(config.compile_sizes or ())))
    asked = tuple(sorted(set(config.compile_ranges or ())))
    check_ranged(sizes, asked, state.mode, state.facts)
    if state.facts.stepped:
        check_compile_sizes(sizes, config.capture_sizes or (), state.graphs)
    state = state.put(
        "compile_sizes", sizes, "none by default" if not sizes else "sorted, each once"
    )
    ends, why = _with_pass_ends(state, asked)
    return state.put("compile_ranges", ends, why)


def _with_pass_ends(state: State, asked: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """The end points, and those at which gates of passes open or close, with the reason."""
    why = "sorted" if asked else "one range by default"
    if not (state.facts.stepped or asked):
        return asked, why
    most = state.facts.max_num_batched_tokens
    wanting = {
        end: rule.name
        for rule in state.passes
        if getattr(state.config.pass_config, rule.name) and not rule.missing_op
        for end in rule.range_ends
        if end < most and end not in asked
    }
    if wanting:
        ends = ", ".join(f"pass {name} at {end}" for end, name in sorted(wanting.items()))
        why = f"a gate opens or closes: {ends}"
    return tuple(sorted({*asked, *wanting})), why


def _dynamic_shapes(state: State) -> State:
    asked, facts = state.config.dynamic_shapes, state.facts
    limits = {"tokens": facts.max_num_batched_tokens, "seqs": facts.max_num_seqs}
    ranges: dict[str, DimRange] = {}
    for item in fields(DynamicShapes):
        declared = getattr(asked, item.name)
        if declared is not None:
            check_within(f"dynamic_shapes.{item.name}", (declared.max,), limits[item.name])
        ranges[item.name] = declared or DimRange(1, limits[item.name])
    return state.put("dynamic_shapes", DynamicShapes(**ranges), "the limits of a step")


_STEPS: tuple[Callable[[State], State], ...] = (
    _levels,
    _backend,
    _custom_ops,
    _passes,
    _inductor_partition,
    _splitting,
    _graph_mode,
    _capture,
    lora_graphs,
    _compile_sizes,
    _dynamic_shapes,
)
