"""Every compile mode in every graph mode on both platforms: what comes of it, and why."""

from __future__ import annotations

import itertools

import pytest

from vcc.cache.errors import ConfigError
from vcc.engine.config.artifacts import Content, Loader
from vcc.engine.config.modes import Backend, CompileMode, GraphMode, Platform
from vcc.engine.config.resolve import PlatformFacts, Resolved, resolve
from vcc.engine.config.types import DEFAULT_SPLITTING_OPS, CompilationConfig

CPU, CUDA = Platform.CPU, Platform.CUDA
NONE, STOCK, ONCE, VCC = CompileMode
NO, PIECES, FULL = GraphMode.NONE, GraphMode.PIECEWISE, GraphMode.FULL
DECODE, BOTH = GraphMode.FULL_DECODE_ONLY, GraphMode.FULL_AND_PIECEWISE
REFUSED = "refused"

TABLE = {
    #              none  piecewise  full  full_decode_only  full_and_piecewise
    (VCC, CPU): (NO, PIECES, FULL, DECODE, BOTH),
    (VCC, CUDA): (NO, PIECES, FULL, DECODE, BOTH),
    (ONCE, CPU): (NO, REFUSED, FULL, DECODE, FULL),
    (ONCE, CUDA): (NO, REFUSED, FULL, DECODE, FULL),
    (NONE, CPU): (NO, PIECES, FULL, DECODE, BOTH),
    (NONE, CUDA): (NO, PIECES, FULL, DECODE, BOTH),
    (STOCK, CPU): (NO, REFUSED, FULL, DECODE, FULL),
    (STOCK, CUDA): (NO, REFUSED, FULL, DECODE, FULL),
}
"""The graph mode that is resolved, by what was asked for in the order of `GraphMode`."""

CASES = [
    (mode, platform, graphs, expected)
    for (mode, platform), row in TABLE.items()
    for graphs, expected in zip(GraphMode, row, strict=True)
]


def resolved(mode: CompileMode, platform: Platform, **asked: object) -> Resolved:
    facts = PlatformFacts(platform, 8, 2048, breakable_graphs=True)
    return resolve(CompilationConfig(mode=mode, **asked), facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "platform", "graphs", "expected"), CASES, ids=str)
def test_a_pair_of_modes(
    mode: CompileMode, platform: Platform, graphs: GraphMode, expected: GraphMode | str
) -> None:
    if expected == REFUSED:
        with pytest.raises(ConfigError, match="needs pieces") as caught:
            resolved(mode, platform, cuda_graph_mode=graphs)
        assert mode.name in caught.value.what
        assert caught.value.hint
        return
    found = resolved(mode, platform, cuda_graph_mode=graphs)
    assert found.config.cuda_graph_mode is expected
    assert bool(found.why("cuda_graph_mode")) is (graphs is not expected), "a change has a reason"
    again = resolve(found.config, PlatformFacts(platform, 8, 2048, breakable_graphs=True))
    assert again.config == found.config


@pytest.mark.parametrize(("mode", "platform"), TABLE, ids=str)
def test_whoever_asks_for_no_graph_mode_gets_one_with_a_reason(
    mode: CompileMode, platform: Platform
) -> None:
    found = resolved(mode, platform)
    assert found.config.cuda_graph_mode is (BOTH if mode is VCC else FULL)
    assert found.why("cuda_graph_mode")


def test_what_each_pair_holds_and_who_boots_it() -> None:
    """DESIGN's table."""
    pieces, table = Content.PIECES, Content.NODE_TABLE
    for mode, platform in itertools.product((VCC, ONCE), (CPU, CUDA)):
        rule = resolved(mode, platform).artifact
        assert table in rule.holds
        assert (pieces in rule.holds) is (platform is CPU)
        assert rule.booted_by is (Loader.TORCH if platform is CPU else Loader.PLAYER)
    eager = resolved(NONE, CUDA).artifact
    assert (eager.booted_by, eager.without_full) == (Loader.PLAYER, Loader.EAGER)
    loaders = {mode: eager.loader(mode) for mode in GraphMode}
    assert {mode for mode, one in loaders.items() if one is Loader.EAGER} == {NO}
    stock = resolved(STOCK, CUDA).artifact
    assert (stock.loader(NO), stock.loader(FULL)) == (Loader.IN_PROCESS, Loader.PLAYER)
    assert resolved(NONE, CPU).artifact.holds == (Content.BINDINGS,)
    assert "pickle" in resolved(STOCK, CPU).artifact.refusal


@pytest.mark.parametrize("mode", [NONE, STOCK])
@pytest.mark.parametrize("field", ["compile_sizes", "compile_ranges"])
def test_ranges_without_code_of_ours_are_a_contradiction(mode: CompileMode, field: str) -> None:
    with pytest.raises(ConfigError, match=f"{mode.name} makes no code for ranges"):
        resolved(mode, CPU, **{field: (8,)})


@pytest.mark.parametrize("platform", Platform)
def test_eager_segments_break_at_the_splitting_ops(platform: Platform) -> None:
    assert (
        resolved(NONE, platform, cuda_graph_mode=PIECES).config.splitting_ops
        == DEFAULT_SPLITTING_OPS
    )
    own = resolved(NONE, platform, cuda_graph_mode=BOTH, splitting_ops=("aten.gelu",)).config
    assert (own.splitting_ops, own.cuda_graph_mode) == (("aten::gelu",), BOTH)
    none = resolved(NONE, platform, cuda_graph_mode=BOTH, splitting_ops=())
    assert none.config.cuda_graph_mode is FULL
    assert resolved(NONE, platform, cuda_graph_mode=FULL).config.splitting_ops == ()


@pytest.mark.parametrize("platform", Platform)
@pytest.mark.parametrize(("graphs", "expected"), [(PIECES, NO), (BOTH, FULL), (FULL, FULL)])
def test_M5_inductors_partition_makes_one_piece_and_says_so(
    platform: Platform, graphs: GraphMode, expected: GraphMode
) -> None:
    found = resolved(VCC, platform, cuda_graph_mode=graphs, use_inductor_graph_partition=True)
    assert (found.config.splitting_ops, found.config.cuda_graph_mode) == ((), expected)
    assert "AOTInductor" in found.why("splitting_ops")[0]
    if graphs is not expected:
        assert "use_inductor_graph_partition" in found.why("cuda_graph_mode")[0]


@pytest.mark.parametrize("asked", [{"mode": NONE}, {"mode": VCC, "backend": Backend.EAGER}])
def test_inductors_partition_without_inductor_is_a_contradiction(asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="Inductor compiles nothing"):
        resolved(platform=CPU, use_inductor_graph_partition=True, **asked)  # type: ignore[arg-type]


def test_the_eager_back_end_is_refused_for_a_gpu() -> None:
    with pytest.raises(ConfigError, match="makes nothing for a GPU"):
        resolved(VCC, CUDA, backend=Backend.EAGER)
    assert resolved(NONE, CUDA, backend=Backend.EAGER).config.backend is Backend.EAGER


@pytest.mark.parametrize("mode", [VCC, ONCE, STOCK])
def test_options_of_inductor_mean_nothing_to_the_eager_back_end(mode: CompileMode) -> None:
    options = (("max_autotune", True),)
    with pytest.raises(ConfigError, match="has no options"):
        resolved(mode, CPU, backend=Backend.EAGER, inductor_config=options)


@pytest.mark.parametrize("platform", Platform)
def test_ranges_and_exact_sizes_are_for_every_platform(platform: Platform) -> None:
    found = resolved(VCC, platform, compile_ranges=(32, 8), compile_sizes=(16,)).config
    assert (found.compile_ranges, found.compile_sizes) == ((8, 32), (16,))
