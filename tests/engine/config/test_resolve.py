"""Rows M2 to M10 and the rules for modes: what resolution gives, and that it says why."""

from __future__ import annotations

import itertools

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.levels import PASS_RULES, PassRule
from vcc.engine.config.modes import (
    AttentionSupport,
    Backend,
    CompileMode,
    GraphMode,
    OptLevel,
    Platform,
)
from vcc.engine.config.resolve import PlatformFacts, Resolved, resolve
from vcc.engine.config.types import (
    DEFAULT_SPLITTING_OPS,
    CompilationConfig,
    DimRange,
    DynamicShapes,
    PassConfig,
)

OPS = ("rms_norm", "silu_and_mul")
NONE, PIECEWISE, FULL = GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL
DECODE_ONLY, BOTH = GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE


def facts(**changes: object) -> PlatformFacts:
    values: dict[str, object] = {"max_num_seqs": 128, "max_num_batched_tokens": 2048}
    return PlatformFacts(Platform.CPU, **(values | {"known_ops": OPS} | changes))


def settle(config: CompilationConfig | None = None, **changes: object) -> Resolved:
    return resolve(config or CompilationConfig(), facts(**changes))


def graphs(mode: GraphMode, config: CompilationConfig | None = None, **changes: object) -> object:
    asked = config or CompilationConfig(cuda_graph_mode=mode)
    return settle(asked, **changes).config.cuda_graph_mode


ON = {rule.name: rule.from_level is not None and not rule.needs_ops for rule in PASS_RULES}
"""What -O2 switches on where no custom op is enabled."""
"""What the default level switches on while no custom op is enabled."""


def test_the_default_is_vcc_compile_with_full_and_piecewise() -> None:
    config = settle().config
    assert (config.level, config.mode) == (OptLevel.O2, CompileMode.VCC_COMPILE)
    assert (config.cuda_graph_mode, config.splitting_ops) == (BOTH, DEFAULT_SPLITTING_OPS)
    assert config.pass_config == PassConfig(**ON)
    assert config.dynamic_shapes == DynamicShapes(DimRange(1, 2048), DimRange(1, 128))


@pytest.mark.parametrize(
    ("level", "mode", "graph_mode", "passes"),
    [
        (OptLevel.O0, CompileMode.NO_COMPILATION, NONE, False),
        (OptLevel.O1, CompileMode.VCC_COMPILE, PIECEWISE, True),
        (OptLevel.O2, CompileMode.VCC_COMPILE, BOTH, True),
        (OptLevel.O3, CompileMode.VCC_COMPILE, BOTH, True),
    ],
)
def test_levels(level: OptLevel, mode: CompileMode, graph_mode: GraphMode, passes: bool) -> None:
    config = settle(CompilationConfig(level=level)).config
    assert (config.mode, config.cuda_graph_mode) == (mode, graph_mode)
    assert config.pass_config.eliminate_noops is passes
    autotune = ("max_autotune", True) in (config.inductor_config or ())
    assert autotune is (level is OptLevel.O3)


def test_a_level_never_overrides_what_the_user_set() -> None:
    asked = CompilationConfig(
        level=OptLevel.O3,
        mode=CompileMode.VCC_COMPILE,
        cuda_graph_mode=NONE,
        inductor_config=(("max_autotune", False),),
    )
    config = settle(asked).config
    assert config.cuda_graph_mode is NONE
    assert config.inductor_config == (("max_autotune", False),)
    zero = settle(CompilationConfig(level=OptLevel.O0, mode=CompileMode.VCC_COMPILE)).config
    assert (zero.mode, zero.cuda_graph_mode) == (CompileMode.VCC_COMPILE, NONE)


def test_M10_a_pass_switched_off_by_the_user_stays_off() -> None:
    asked = CompilationConfig(level=OptLevel.O2, pass_config=PassConfig(eliminate_noops=False))
    found = settle(asked)
    assert found.config.pass_config == PassConfig(**{**ON, "eliminate_noops": False})
    assert found.why("pass_config.eliminate_noops") == ()
    assert found.why("pass_config.eliminate_dead_code") == ("level O2",)


def test_a_fusion_is_off_while_its_op_is_not_enabled() -> None:
    rules = (PassRule("eliminate_noops", OptLevel.O2, needs_ops=frozenset({"rms_norm"})),)
    off = resolve(CompilationConfig(), facts(), rules)
    assert off.config.pass_config.eliminate_noops is False
    assert "rms_norm is not enabled" in off.why("pass_config.eliminate_noops")[0]
    on = resolve(CompilationConfig(custom_ops=("+rms_norm",)), facts(), rules)
    assert on.config.pass_config.eliminate_noops is True


def test_M2_full_needs_attention_that_takes_every_step() -> None:
    asked = CompilationConfig(cuda_graph_mode=FULL)
    assert graphs(FULL, asked, attention=AttentionSupport.ALWAYS) is FULL
    assert graphs(FULL, asked, attention=AttentionSupport.UNIFORM_BATCH) is BOTH
    uncut = CompilationConfig(cuda_graph_mode=FULL, splitting_ops=())
    assert graphs(FULL, uncut, attention=AttentionSupport.UNIFORM_BATCH) is DECODE_ONLY
    elsewhere = CompilationConfig(cuda_graph_mode=FULL, splitting_ops=("vcc::experts",))
    assert graphs(FULL, elsewhere, attention=AttentionSupport.UNIFORM_BATCH) is DECODE_ONLY


def test_M4_speculative_decode_needs_uniform_batches() -> None:
    single = AttentionSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert graphs(BOTH, attention=single, decode_query_len=3) is PIECEWISE
    assert graphs(BOTH, attention=single) is BOTH
    assert graphs(DECODE_ONLY, attention=AttentionSupport.UNIFORM_BATCH, decode_query_len=3) is (
        DECODE_ONLY
    )


@pytest.mark.parametrize("mode", [BOTH, PIECEWISE])
def test_M5_a_pass_across_attention_leaves_no_cuts_and_full_graphs(mode: GraphMode) -> None:
    rules = (PassRule("eliminate_noops", OptLevel.O2, joins_attention=True),)
    found = resolve(CompilationConfig(cuda_graph_mode=mode), facts(), rules)
    assert (found.config.splitting_ops, found.config.cuda_graph_mode) == ((), FULL)
    assert "eliminate_noops" in found.why("splitting_ops")[0]


def test_M5_with_splitting_ops_from_the_user_is_a_contradiction() -> None:
    rules = (PassRule("eliminate_noops", OptLevel.O2, joins_attention=True),)
    asked = CompilationConfig(splitting_ops=("vcc::paged_attention",))
    with pytest.raises(ConfigError, match="rewrites across attention"):
        resolve(asked, facts(), rules)


@pytest.mark.parametrize(("asked", "expected"), [(PIECEWISE, NONE), (BOTH, FULL)])
def test_no_cuts_leave_no_pieces(asked: GraphMode, expected: GraphMode) -> None:
    found = settle(CompilationConfig(cuda_graph_mode=asked, splitting_ops=()))
    assert found.config.cuda_graph_mode is expected
    assert "no pieces" in found.why("cuda_graph_mode")[0]


@pytest.mark.parametrize("mode", [FULL, BOTH, DECODE_ONLY])
def test_attention_that_is_never_capturable(mode: GraphMode) -> None:
    never = AttentionSupport.NEVER
    assert graphs(mode, attention=never) is PIECEWISE
    uncut = CompilationConfig(cuda_graph_mode=mode, splitting_ops=())
    assert graphs(mode, uncut, attention=never) is NONE


def test_piecewise_without_compiling_is_refused_unless_graphs_can_be_broken() -> None:
    asked = CompilationConfig(mode=CompileMode.NO_COMPILATION, cuda_graph_mode=PIECEWISE)
    with pytest.raises(ConfigError, match="piecewise needs pieces"):
        settle(asked)
    assert settle(asked, breakable_graphs=True).config.cuda_graph_mode is PIECEWISE


@pytest.mark.parametrize("mode", [CompileMode.DYNAMO_TRACE_ONCE, CompileMode.NO_COMPILATION])
def test_modes_without_cuts_get_full_graphs_with_a_reason(mode: CompileMode) -> None:
    found = settle(CompilationConfig(mode=mode))
    assert (found.config.splitting_ops, found.config.cuda_graph_mode) == ((), FULL)
    assert mode.name in found.why("splitting_ops")[0]


def test_trace_once_with_splitting_ops_is_a_contradiction() -> None:
    with pytest.raises(ConfigError, match="does not cut"):
        settle(CompilationConfig(mode=CompileMode.DYNAMO_TRACE_ONCE, splitting_ops=("a::b",)))


@pytest.mark.parametrize(
    ("changes", "base"),
    [
        ({}, "none"),
        ({"backend": Backend.EAGER}, "all"),
        ({"mode": CompileMode.NO_COMPILATION}, "all"),
    ],
)
def test_M7_base_of_custom_ops(changes: dict[str, object], base: str) -> None:
    found = settle(CompilationConfig(**changes))
    assert found.ops.enabled == (frozenset(OPS) if base == "all" else frozenset())
    assert all(one.why for one in found.ops.decisions)


def test_M6_128_sequences_capture_up_to_256() -> None:
    config = settle().config
    assert (config.max_capture_size, (config.capture_sizes or ())[:5]) == (256, (1, 2, 4, 8, 16))


def test_M6_an_explicit_maximum_must_be_the_largest_size() -> None:
    with pytest.raises(ConfigError, match="max_capture_size 8 is not the largest"):
        settle(CompilationConfig(capture_sizes=(1, 2, 4), max_capture_size=8))


def test_M6_a_maximum_between_sizes_goes_down() -> None:
    assert settle(CompilationConfig(max_capture_size=257)).config.max_capture_size == 256


def test_M6_sizes_above_the_budget_are_dropped_with_a_reason() -> None:
    found = settle(CompilationConfig(capture_sizes=(1, 2, 4, 15)), max_num_batched_tokens=8)
    assert (found.config.capture_sizes, found.config.max_capture_size) == ((1, 2, 4), 4)
    assert "15 above the token budget of 8" in found.why("capture_sizes")[0]


@pytest.mark.parametrize("values", [{"capture_sizes": ()}, {"max_capture_size": 0}])
def test_M6_no_size_with_graphs_on_is_an_error(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no capture size is left"):
        settle(CompilationConfig(**values))
    off = settle(CompilationConfig(cuda_graph_mode=NONE, **values)).config
    assert (off.capture_sizes, off.max_capture_size) == ((), 0)


def test_sizes_are_sorted_and_unique() -> None:
    config = settle(CompilationConfig(capture_sizes=(8, 1, 8, 2))).config
    assert config.capture_sizes == (1, 2, 8)


def test_a_compile_size_that_is_padded_is_refused_at_build() -> None:
    asked = CompilationConfig(compile_sizes=(3,), capture_sizes=(1, 2, 4, 8))
    with pytest.raises(ValueError, match="3 → 4"):
        settle(asked)
    assert settle(CompilationConfig(compile_sizes=(3,), cuda_graph_mode=NONE))


def test_query_length_rounds_defaults_and_refuses_odd_sizes() -> None:
    config = settle(decode_query_len=3).config
    assert all(size % 3 == 0 for size in config.capture_sizes or (1,))
    with pytest.raises(ConfigError, match="not a multiple"):
        settle(CompilationConfig(capture_sizes=(1, 2)), decode_query_len=3)


@pytest.mark.parametrize("field", ["compile_sizes", "compile_ranges"])
def test_values_above_the_token_budget_are_named(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} has 4096, above the token budget of 2048"):
        settle(CompilationConfig(**{field: (4096,)}))


def test_a_declared_range_above_the_budget_is_refused() -> None:
    shapes = DynamicShapes(tokens=DimRange(1, 4096))
    with pytest.raises(ConfigError, match=r"dynamic_shapes\.tokens has 4096"):
        settle(CompilationConfig(dynamic_shapes=shapes))


EVERY = list(
    itertools.product(
        (None, *CompileMode), (None, *GraphMode), AttentionSupport, Platform, (None, *OptLevel)
    )
)


def outcome(asked: CompilationConfig, known: PlatformFacts) -> Resolved | ConfigError:
    try:
        return resolve(asked, known)
    except ConfigError as error:
        return error


def test_every_combination_resolves_fully_or_is_refused_with_a_hint() -> None:
    for mode, graph_mode, attention, platform, level in EVERY:
        asked = CompilationConfig(mode=mode, cuda_graph_mode=graph_mode, level=level)
        known = PlatformFacts(platform, 8, 64, attention, known_ops=OPS)
        found = outcome(asked, known)
        if isinstance(found, ConfigError):
            assert graph_mode is PIECEWISE
            assert found.hint
            continue
        again = resolve(found.config, known)
        assert (again.config, again.reasons) == (found.config, ())
        assert None not in [getattr(found.config, name) for name in found.config.__slots__]
        assert all(reason.why for reason in found.reasons)
        if attention is AttentionSupport.NEVER:
            assert not (found.config.cuda_graph_mode or FULL).uses(FULL)


def test_every_changed_field_has_a_reason() -> None:
    asked = CompilationConfig(cuda_graph_mode=FULL)
    found = settle(asked, attention=AttentionSupport.UNIFORM_BATCH)
    named = {reason.field.split(".")[0] for reason in found.reasons}
    changed = {
        name for name in asked.__slots__ if getattr(asked, name) != getattr(found.config, name)
    }
    assert changed == named
    assert "full → full_and_piecewise" in "\n".join(map(str, found.reasons))
