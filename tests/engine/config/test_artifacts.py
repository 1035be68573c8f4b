"""The artifact table is total and its refusals say what to do."""

from __future__ import annotations

import itertools

from vcc.engine.config.artifacts import Content, Loader, artifact_rule
from vcc.engine.config.modes import CompileMode, GraphMode, Platform


def test_every_mode_on_every_platform_has_a_rule() -> None:
    for mode, platform in itertools.product(CompileMode, Platform):
        rule = artifact_rule(mode, platform)
        assert bool(rule.refusal) == (not rule.holds)
        assert bool(rule.hint) == bool(rule.refusal)


def test_stock_compile_on_cpu_is_refused_because_its_cache_is_pickle() -> None:
    rule = artifact_rule(CompileMode.STOCK_TORCH_COMPILE, Platform.CPU)
    assert "pickle" in rule.refusal
    assert rule.loader(GraphMode.NONE) is Loader.IN_PROCESS


def test_trace_once_holds_the_same_as_vcc_compile() -> None:
    for platform in Platform:
        once = artifact_rule(CompileMode.DYNAMO_TRACE_ONCE, platform)
        assert once == artifact_rule(CompileMode.VCC_COMPILE, platform)


def test_pieces_only_on_cpu_and_cubins_only_on_cuda() -> None:
    for mode in CompileMode:
        assert Content.CUBINS not in artifact_rule(mode, Platform.CPU).holds
        assert Content.PIECES not in artifact_rule(mode, Platform.CUDA).holds


def test_eager_on_cuda_needs_full_graphs_for_the_player() -> None:
    rule = artifact_rule(CompileMode.NO_COMPILATION, Platform.CUDA)
    assert rule.needs_gpu
    assert rule.loader(GraphMode.FULL_DECODE_ONLY) is Loader.PLAYER
    assert rule.loader(GraphMode.NONE) is Loader.EAGER
